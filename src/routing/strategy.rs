//! The orders in which a rule's targets may be tried. Draws are hashes of the seed, so that a decision repeats on any
//! machine: `libm` and xxh3 give the same bits everywhere, where the system's `log` need not.

use super::document::Strategy;
use super::recipe::Choosable;

/// The targets in the order to try them, as indices into `from`, and the probability with which the first of them is first.
/// Equal ranks keep the document's order.
pub fn order(strategy: Strategy, from: &[&Choosable], seed: u64) -> (Vec<usize>, f64) {
    match strategy {
        Strategy::Priority => ((0..from.len()).collect(), 1.0),
        Strategy::Weighted => weighted(from, seed),
    }
}

/// Exponential races (Efraimidis and Spirakis): the smallest −ln(u)/weight is first with probability weight/sum, and
/// since each target draws by itself, changing one weight moves picks only to or from that target.
fn weighted(from: &[&Choosable], seed: u64) -> (Vec<usize>, f64) {
    let mut ranked: Vec<(f64, usize)> = from.iter().enumerate().map(|(at, choice)| (rank(choice, seed), at)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0)); // stable
    let sum: f64 = from.iter().map(|choice| choice.weight()).sum();
    let first = ranked.first().and_then(|(_, at)| from.get(*at)).map_or(0.0, |choice| choice.weight());
    // Targets of weight 0 run only when nothing else is left, and then in order, without a draw.
    let propensity = if sum > 0.0 { first / sum } else { 1.0 };
    (ranked.into_iter().map(|(_, at)| at).collect(), propensity)
}

fn rank(choice: &Choosable, seed: u64) -> f64 {
    if choice.weight() > 0.0 { -libm::log(draw(seed, "weighted", &choice.target().name)) / choice.weight() } else { f64::INFINITY }
}

/// A number in (0, 1) that depends on the seed, the purpose and the target only.
fn draw(seed: u64, purpose: &str, target: &str) -> f64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(seed);
    hasher.update(purpose.as_bytes());
    hasher.update(&[0]);
    hasher.update(target.as_bytes());
    ((hasher.digest() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_the_same_on_every_machine() {
        // Stored decisions depend on these bits.
        let bits = [draw(1, "weighted", "demo/a"), -libm::log(draw(u64::MAX, "weighted", "demo/b"))].map(f64::to_bits);
        assert_eq!(bits, [4605384069184086190, 4610379768989224683]);
        let draws: Vec<f64> = (0..1000).map(|seed| draw(seed, "weighted", "demo/a")).collect();
        assert!(draws.iter().all(|u| *u > 0.0 && *u < 1.0));
        let mean = draws.iter().sum::<f64>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
        assert_ne!(draw(1, "weighted", "demo/a").to_bits(), draw(1, "shadow", "demo/a").to_bits());
    }
}
