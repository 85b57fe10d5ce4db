//! The orders in which a rule's targets may be tried. Draws are hashes of the seed, so that a decision repeats on any
//! machine: `libm` and xxh3 give the same bits everywhere, where the system's `log` need not.

use std::cmp::Reverse;

use super::document::Strategy;
use super::inputs::Inputs;
use super::on_nodes::state;
use super::recipe::{Choosable, Shadow, Target};
use crate::bounds;

/// The targets in the order to try them, as indices into `from`, and the probability with which the first of them is first,
/// given everything but the seed. Equal ranks keep the document's order. `key` is what `sticky` keeps together.
pub fn order(
    strategy: Strategy,
    from: &[&Choosable],
    inputs: &Inputs,
    key: Option<&str>,
) -> (Vec<usize>, f64) {
    match strategy {
        Strategy::Priority => ((0..from.len()).collect(), 1.0),
        Strategy::Weighted => weighted(from, inputs.seed),
        Strategy::LeastLatency => least_latency(from, inputs),
        Strategy::LeastBusy => {
            (ranked(from, |target| state(target, inputs).map_or(0, |health| health.inflight)), 1.0)
        }
        Strategy::Cheapest => (ranked(from, |target| Cost(cost(target, inputs))), 1.0),
        Strategy::Sticky => sticky(from, inputs.seed, key),
    }
}

/// Indices by rank; equal ranks in the order given.
fn ranked<K: Ord>(from: &[&Choosable], rank: impl Fn(&Target) -> K) -> Vec<usize> {
    let mut order: Vec<(K, usize)> =
        from.iter().enumerate().map(|(at, choice)| (rank(choice.target()), at)).collect();
    order.sort();
    order.into_iter().map(|(_, at)| at).collect()
}

/// Exponential races (Efraimidis and Spirakis): the smallest −ln(u)/weight is first with probability weight/sum, and
/// since each target draws by itself, changing one weight moves picks only to or from that target.
fn weighted(from: &[&Choosable], seed: u64) -> (Vec<usize>, f64) {
    let mut ranked: Vec<(f64, usize)> =
        from.iter().enumerate().map(|(at, choice)| (rank(choice, seed), at)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0)); // stable
    let sum: f64 = from.iter().map(|choice| choice.weight()).sum();
    let first =
        ranked.first().and_then(|(_, at)| from.get(*at)).map_or(0.0, |choice| choice.weight());
    // Targets of weight 0 run only when nothing else is left, and then in order, without a draw.
    let propensity = if sum > 0.0 { first / sum } else { 1.0 };
    (ranked.into_iter().map(|(_, at)| at).collect(), propensity)
}

fn rank(choice: &Choosable, seed: u64) -> f64 {
    if choice.weight() > 0.0 {
        -libm::log(draw(seed, "weighted", &choice.target().name)) / choice.weight()
    } else {
        f64::INFINITY
    }
}

/// Two are drawn and the one that would answer sooner is first: the load spreads where always taking the quickest would
/// send everybody to one target at once. After it come all others, the quickest first, as they are for failures only.
fn least_latency(from: &[&Choosable], inputs: &Inputs) -> (Vec<usize>, f64) {
    let mut order = ranked(from, |target| expected(target, inputs));
    let mut drawn: Vec<(u64, usize)> =
        order.iter().enumerate().map(|(place, at)| (hash(from, *at, inputs), place)).collect();
    drawn.sort_unstable();
    let quicker = drawn.iter().take(2).map(|(_, place)| *place).min().unwrap_or(0);
    if quicker < order.len() {
        let first = order.remove(quicker);
        order.insert(0, first);
    }
    // It is first in each of the n(n−1)/2 equally likely pairs whose other is one of those after it.
    let n = from.len() as f64;
    let propensity =
        if from.len() > 1 { 2.0 * (n - 1.0 - quicker as f64) / (n * (n - 1.0)) } else { 1.0 };
    (order, propensity)
}

fn hash(from: &[&Choosable], at: usize, inputs: &Inputs) -> u64 {
    from.get(at)
        .map_or(u64::MAX, |choice| hash64(inputs.seed, "least_latency", &choice.target().name))
}

/// What one more request would wait for: the latency seen of late times those that wait already (peak EWMA). A target
/// that nothing is known of is tried first, by one request; the others wait for what that one tells.
fn expected(target: &Target, inputs: &Inputs) -> u128 {
    let (ewma_us, inflight) =
        state(target, inputs).map_or((None, 0), |health| (health.ewma_us, health.inflight));
    match (ewma_us, inflight) {
        (None, 0) => 0,
        (None, waiting) => u128::from(u64::MAX) * u128::from(u32::MAX) + u128::from(waiting),
        (Some(ewma_us), waiting) => u128::from(ewma_us) * (u128::from(waiting) + 1),
    }
}

/// Dollars with an order; what is unknown comes last.
struct Cost(Option<f64>);

impl Ord for Cost {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.unwrap_or(f64::INFINITY).total_cmp(&other.0.unwrap_or(f64::INFINITY))
    }
}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cost {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cost {}

/// What the request would cost at most, in millionths of a dollar; `None` where a price that it takes is unknown. Few
/// answers are as long as `max_tokens` allows, so beyond [`bounds::ANSWER_TOKENS`] it does not count.
pub fn cost(target: &Target, inputs: &Inputs) -> Option<f64> {
    let prices = target.prices.as_ref()?;
    let prompt = inputs.request.prompt_tokens as f64 * prices.input_per_mtok?;
    match inputs.request.answer_tokens().min(bounds::ANSWER_TOKENS) {
        0 => Some(prompt),
        answer => Some(prompt + answer as f64 * prices.output_per_mtok?),
    }
}

/// Rendezvous: each target draws with the key, the highest is first. A target that leaves moves only its own keys, one
/// that joins takes its share of everybody's. Without a key the seed draws, and any target is as likely.
fn sticky(from: &[&Choosable], seed: u64, key: Option<&str>) -> (Vec<usize>, f64) {
    let key = key.filter(|key| !key.is_empty());
    let seed = key.map_or(seed, |key| xxhash_rust::xxh3::xxh3_64(key.as_bytes()));
    let order = ranked(from, |target| Reverse(hash64(seed, "sticky", &target.name)));
    (order, if key.is_some() { 1.0 } else { 1.0 / from.len().max(1) as f64 })
}

/// Whether the request of this seed is one of those that are copied. The draw is its own: it says nothing of the plan.
pub fn is_shadowed(seed: u64, shadow: &Shadow) -> bool {
    draw(seed, "shadow", &shadow.target.name) * 100.0 < shadow.percent
}

/// A number in (0, 1) that depends on the seed, the purpose and the target only.
fn draw(seed: u64, purpose: &str, target: &str) -> f64 {
    ((hash64(seed, purpose, target) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// What every draw is made of.
fn hash64(seed: u64, purpose: &str, target: &str) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(seed);
    hasher.update(purpose.as_bytes());
    hasher.update(&[0]);
    hasher.update(target.as_bytes());
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_the_same_on_every_machine() {
        // Stored decisions depend on these bits.
        let bits =
            [draw(1, "weighted", "demo/a"), -libm::log(draw(u64::MAX, "weighted", "demo/b"))]
                .map(f64::to_bits);
        assert_eq!(bits, [4605384069184086190, 4610379768989224683]);
        assert_eq!(xxhash_rust::xxh3::xxh3_64(b"usr_1"), 17682024846684581932);
        let draws: Vec<f64> = (0..1000).map(|seed| draw(seed, "weighted", "demo/a")).collect();
        assert!(draws.iter().all(|u| *u > 0.0 && *u < 1.0));
        let mean = draws.iter().sum::<f64>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
        assert_ne!(draw(1, "weighted", "demo/a").to_bits(), draw(1, "shadow", "demo/a").to_bits());
    }
}
