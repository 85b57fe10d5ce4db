//! Strategies: the order in which a rule's targets are tried. Draws are hashes of the seed, so that
//! a decision repeats on any machine. `libm` and xxh3 give the same bits everywhere; the system's
//! `log` does not.

use std::cmp::Reverse;

use super::compiled::{Shadow, WeightedTarget};
use super::document::Strategy;
use super::inputs::Inputs;
use super::node_targets::state;
use super::target::Target;
use rerouter_base::bounds;
use rerouter_base::usage_kind::UsageKind;

/// The targets in the order to try, as indices into `from`, and the probability that the first one
/// is first, given all inputs except the seed. Equal ranks keep document order. `key` is the sticky
/// key.
pub(super) fn order(
    strategy: Strategy,
    from: &[&WeightedTarget],
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
        Strategy::Cheapest => (ranked(from, |target| by_cost(cost(target, inputs))), 1.0),
        Strategy::Sticky => sticky(from, inputs.seed, key),
    }
}

/// Indices by rank; equal ranks keep their order.
fn ranked<K: Ord>(from: &[&WeightedTarget], rank: impl Fn(&Target) -> K) -> Vec<usize> {
    let mut order: Vec<(K, usize)> =
        from.iter().enumerate().map(|(at, choice)| (rank(&choice.target), at)).collect();
    order.sort();
    order.into_iter().map(|(_, at)| at).collect()
}

/// Weighted sampling by exponential races (Efraimidis and Spirakis). The smallest −ln(u)/weight is
/// first with probability weight/sum. Each target has its own draw, so a changed weight moves
/// requests only to or from that target.
fn weighted(from: &[&WeightedTarget], seed: u64) -> (Vec<usize>, f64) {
    let mut ranked: Vec<(f64, usize)> =
        from.iter().enumerate().map(|(at, choice)| (rank(choice, seed), at)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0)); // stable
    let sum: f64 = from.iter().map(|choice| choice.weight).sum();
    let first =
        ranked.first().and_then(|(_, at)| from.get(*at)).map_or(0.0, |choice| choice.weight);
    // Targets of weight 0 come last, in document order, without a draw.
    let propensity = if sum > 0.0 { first / sum } else { 1.0 };
    (ranked.into_iter().map(|(_, at)| at).collect(), propensity)
}

fn rank(choice: &WeightedTarget, seed: u64) -> f64 {
    if choice.weight > 0.0 {
        -libm::log(draw(seed, "weighted", &choice.target.name)) / choice.weight
    } else {
        f64::INFINITY
    }
}

/// Power of two choices: two targets are drawn and the faster one is first. Load spreads, where
/// always taking the fastest would send every request to one target. The others follow by expected
/// latency; they serve failovers only.
fn least_latency(from: &[&WeightedTarget], inputs: &Inputs) -> (Vec<usize>, f64) {
    let mut order = ranked(from, |target| expected(target, inputs));
    let mut drawn: Vec<(u64, usize)> =
        order.iter().enumerate().map(|(rank, at)| (hash(from, *at, inputs), rank)).collect();
    drawn.sort_unstable();
    let faster = drawn.iter().take(2).map(|(_, rank)| *rank).min().unwrap_or(0);
    if faster < order.len() {
        let first = order.remove(faster);
        order.insert(0, first);
    }
    // The faster target wins those of the n(n−1)/2 equally likely pairs whose other member has a
    // higher rank.
    let n = from.len() as f64;
    let propensity =
        if from.len() > 1 { 2.0 * (n - 1.0 - faster as f64) / (n * (n - 1.0)) } else { 1.0 };
    (order, propensity)
}

fn hash(from: &[&WeightedTarget], at: usize, inputs: &Inputs) -> u64 {
    from.get(at)
        .map_or(u64::MAX, |choice| hash64(inputs.seed, "least_latency", &choice.target.name))
}

/// Expected latency of one more request: peak EWMA times the requests in flight plus one. A target
/// without a measurement is first while idle, so that one request measures it, and last while busy.
fn expected(target: &Target, inputs: &Inputs) -> u128 {
    let (ewma_us, inflight) =
        state(target, inputs).map_or((None, 0), |health| (health.ewma_us, health.inflight));
    match (ewma_us, inflight) {
        (None, 0) => 0,
        (None, waiting) => u128::from(u64::MAX) * u128::from(u32::MAX) + u128::from(waiting),
        (Some(ewma_us), waiting) => u128::from(ewma_us) * (u128::from(waiting) + 1),
    }
}

/// A rank by cost, which is never negative: the bits of such numbers have their order. Unknown
/// comes last.
fn by_cost(cost: Option<f64>) -> u64 {
    cost.map_or(u64::MAX, |cost| cost.max(0.0).to_bits())
}

/// Estimated cost of the request in millionths of a dollar; `None` if a required price is unknown.
/// Few answers use up `max_tokens`, so the answer counts as [`bounds::ANSWER_TOKENS`] at most.
pub fn cost(target: &Target, inputs: &Inputs) -> Option<f64> {
    let prices = target.prices.as_ref()?;
    let prompt = inputs.request.prompt_tokens as f64 * prices.base.get(UsageKind::Input)?;
    match inputs.request.answer_tokens().min(bounds::ANSWER_TOKENS) {
        0 => Some(prompt),
        answer => Some(prompt + answer as f64 * prices.base.get(UsageKind::Output)?),
    }
}

/// Rendezvous hashing: each target hashes with the key, the highest hash is first. A target that
/// leaves moves only its own keys; one that joins takes an equal share from each. Without a key the
/// seed takes its place, and every target is equally likely.
fn sticky(from: &[&WeightedTarget], seed: u64, key: Option<&str>) -> (Vec<usize>, f64) {
    let key = key.filter(|key| !key.is_empty());
    let seed = key.map_or(seed, |key| xxhash_rust::xxh3::xxh3_64(key.as_bytes()));
    let order = ranked(from, |target| Reverse(hash64(seed, "sticky", &target.name)));
    (order, if key.is_some() { 1.0 } else { 1.0 / from.len().max(1) as f64 })
}

/// Whether the request with this seed is copied to the shadow. The draw is independent of the
/// plan's.
pub(super) fn is_shadowed(seed: u64, shadow: &Shadow) -> bool {
    draw(seed, "shadow", &shadow.target.name) * 100.0 < shadow.percent
}

/// A uniform number in (0, 1) from the seed, the purpose and the target.
fn draw(seed: u64, purpose: &str, target: &str) -> f64 {
    ((hash64(seed, purpose, target) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// The hash behind every draw.
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
