//! How far the estimate of prompts is off for each name that clients ask for, by what providers count. The estimate does
//! not know which tokenizer, template and hidden instructions a model has; the counts of its answers do.

use dashmap::DashMap;

use super::recipe::Routing;

/// What a name begins with, in tokens: so many have to be counted otherwise before they weigh as much as the estimate.
const PRIOR: f64 = 1000.0;
/// What is kept of all former counts at each further one: the last fifty make most of it.
const KEPT: f64 = 0.98;
/// Most that an estimate is corrected by, either way: what is off by more is no prompt's doing (a provider's own search).
const MOST: f64 = 2.0;

/// Counted and estimated tokens of late, by the name asked for. In memory only; names come from configuration only.
#[derive(Debug, Default)]
pub struct Bias {
    names: DashMap<String, Sums>,
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    counted: f64,
    estimated: f64,
}

impl Default for Sums {
    fn default() -> Self {
        Sums { counted: PRIOR, estimated: PRIOR }
    }
}

impl Bias {
    /// The estimate for a request to `name` as corrected by its recent past.
    pub fn correct(&self, name: &str, estimated: u64) -> u64 {
        match self.names.get(name) {
            Some(sums) => (estimated as f64
                * (sums.counted / sums.estimated).clamp(1.0 / MOST, MOST))
            .round() as u64,
            None => estimated,
        }
    }

    /// Notes what the provider counted where `estimated` was the estimate, uncorrected. Long prompts weigh more: of short
    /// ones a fixed part that the provider adds is most.
    pub fn learn(&self, routing: &Routing, name: &str, estimated: u64, counted: u64) {
        if estimated == 0
            || counted == 0
            || (routing.alias(name).is_none() && routing.target(name).is_none())
        {
            return;
        }
        if !self.names.contains_key(name) {
            self.names.entry(name.to_owned()).or_default();
        }
        if let Some(mut sums) = self.names.get_mut(name) {
            // One count can move the sums by its own weight only, however wrong it is.
            let counted = (counted as f64).min(estimated as f64 * MOST * MOST);
            sums.counted = sums.counted * KEPT + counted;
            sums.estimated = sums.estimated * KEPT + estimated as f64;
        }
    }

    /// Forgets the names that the document does not have.
    pub fn retain(&self, routing: &Routing) {
        self.names
            .retain(|name, _| routing.alias(name).is_some() || routing.target(name).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn routing(model: &str) -> Routing {
        let text = format!(
            "providers: {{ p: {{ protocol: mock }} }}\nrecipes: {{ r: {{ rules: [{{ name: x, targets: [{{ target: p/{model} }}] }}] }} }}\n\
             aliases: {{ auto: r }}\n"
        );
        let server = config::read_server("server.yaml", "", &|_| None).unwrap();
        config::read_routing("routing.yaml", &text, &server, &|_| None, None)
            .unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    #[test]
    fn it_follows_what_is_counted_within_its_bounds() {
        let (bias, document) = (Bias::default(), routing("m"));
        assert_eq!(bias.correct("auto", 1000), 1000);
        bias.learn(&document, "auto", 10, 13);
        assert_eq!(bias.correct("auto", 1000), 1003, "one short prompt says little");
        for _ in 0..200 {
            bias.learn(&document, "auto", 400, 520);
        }
        assert!(
            (1295..=1300).contains(&bias.correct("auto", 1000)),
            "{}",
            bias.correct("auto", 1000)
        );
        assert_eq!(bias.correct("p/m", 1000), 1000, "each name has its own");
        for _ in 0..200 {
            bias.learn(&document, "auto", 10, 100_000);
            bias.learn(&document, "p/m", 100_000, 10);
        }
        assert_eq!((bias.correct("auto", 1000), bias.correct("p/m", 1000)), (2000, 500));
        bias.learn(&document, "auto", 0, 5);
        bias.learn(&document, "auto", 5, 0);
        assert_eq!(bias.correct("auto", 1000), 2000);
    }

    #[test]
    fn only_names_of_the_document_are_kept() {
        let (bias, document) = (Bias::default(), routing("m"));
        for name in ["auto", "p/m", "p/unknown", "r", ""] {
            bias.learn(&document, name, 1000, 3000);
        }
        assert_eq!(bias.names.len(), 2);
        bias.retain(&routing("other"));
        assert_eq!(
            (bias.correct("auto", 1000), bias.correct("p/m", 1000), bias.names.len()),
            (2000, 1000, 1)
        );
    }
}
