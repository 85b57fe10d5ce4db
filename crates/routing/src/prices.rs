//! Prices of a model, and the cost of an answer.

use rerouter_base::money::{dollars, nano_usd};
use rerouter_dialect::usage::Usage;

/// Prices in US dollars per million tokens. `None` is unknown, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    pub input_per_mtok: Option<f64>,
    pub output_per_mtok: Option<f64>,
    /// Prompt tokens read from the provider's cache; unknown: same as other prompt tokens.
    pub cached_input_per_mtok: Option<f64>,
}

impl Prices {
    /// Cost of an answer in dollars, rounded to whole nano-dollars. `None` if a required price is
    /// unknown.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        let input = self.input_per_mtok?;
        let cached = usage.cached_tokens.unwrap_or(0).min(usage.prompt_tokens);
        let fresh = usage.prompt_tokens - cached;
        let prompt =
            fresh as f64 * input + cached as f64 * self.cached_input_per_mtok.unwrap_or(input);
        let answer = match usage.output_tokens() {
            // Embedding models have no output price.
            0 => 0.0,
            tokens => tokens as f64 * self.output_per_mtok?,
        };
        Some(dollars(nano_usd((prompt + answer) / 1e6)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_needs_every_price_it_takes() {
        let (prompt_tokens, completion_tokens) = (1_000_000, 500_000);
        let usage = Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: 1_500_000,
            cached_tokens: Some(400_000),
            estimated: false,
        };
        let prices = Prices {
            input_per_mtok: Some(1.0),
            output_per_mtok: Some(4.0),
            cached_input_per_mtok: Some(0.1),
        };
        assert!((prices.cost(&usage).unwrap() - (0.6 + 0.04 + 2.0)).abs() < 1e-9);
        assert_eq!(Prices { output_per_mtok: None, ..prices }.cost(&usage), None);
        let thinking = Usage { total_tokens: 1_700_000, ..usage };
        assert!((prices.cost(&thinking).unwrap() - (0.6 + 0.04 + 2.8)).abs() < 1e-9);
        let without_cached = Prices { cached_input_per_mtok: None, ..prices };
        assert!((without_cached.cost(&usage).unwrap() - 3.0).abs() < 1e-9);
    }
}
