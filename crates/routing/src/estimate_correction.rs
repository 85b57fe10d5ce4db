//! Corrects the estimate of prompt tokens for each requested name by the counts that its providers
//! report. The estimate ignores tokenizers, chat templates and hidden instructions; the counts
//! include them.

use dashmap::DashMap;

use super::compiled::Routing;

/// Prior weight of the plain estimate, in tokens.
const PRIOR: f64 = 1000.0;
/// Factor by which each new count shrinks the former sums. The last fifty counts have most of the
/// weight.
const KEPT: f64 = 0.98;
/// Limit of the correction factor, either way. A larger difference is not due to the prompt, but
/// for example to a web search by the provider.
const MOST: f64 = 2.0;

/// Recent counted and estimated tokens by requested name, kept in memory only. Names under a
/// pattern share its sums. Names come from the document, so their number is bounded.
#[derive(Debug, Default)]
pub struct EstimateCorrection {
    names: DashMap<String, TokenSums>,
}

#[derive(Clone, Copy, Debug)]
struct TokenSums {
    counted: f64,
    estimated: f64,
}

impl Default for TokenSums {
    fn default() -> Self {
        TokenSums { counted: PRIOR, estimated: PRIOR }
    }
}

impl EstimateCorrection {
    pub fn correct(&self, routing: &Routing, name: &str, estimated: u64) -> u64 {
        let name = if routing.has_patterns() { routing.entry(name).unwrap_or(name) } else { name };
        match self.names.get(name) {
            Some(sums) => (estimated as f64
                * (sums.counted / sums.estimated).clamp(1.0 / MOST, MOST))
            .round() as u64,
            None => estimated,
        }
    }

    /// Records the provider's count for an uncorrected estimate. Long prompts weigh more: in short
    /// ones the fixed part that the provider adds prevails.
    pub fn learn(&self, routing: &Routing, name: &str, estimated: u64, counted: u64) {
        if estimated == 0 || counted == 0 {
            return;
        }
        let Some(name) = routing.entry(name) else { return };
        if let Some(mut sums) = self.names.get_mut(name) {
            sums.add(estimated, counted);
        } else {
            self.names.entry(name.to_owned()).or_default().add(estimated, counted);
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn known(&self) -> usize {
        self.names.len()
    }

    /// Removes names that the document does not have.
    pub fn retain(&self, routing: &Routing) {
        self.names.retain(|name, _| routing.entry(name) == Some(name));
    }
}

impl TokenSums {
    fn add(&mut self, estimated: u64, counted: u64) {
        let estimated = estimated as f64;
        // Bounds the effect of a single wrong count.
        let counted = (counted as f64).min(estimated * MOST * MOST);
        self.counted = self.counted * KEPT + counted;
        self.estimated = self.estimated * KEPT + estimated;
    }
}
