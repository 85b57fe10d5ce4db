//! Prices of a model, and the cost of an answer.

use std::collections::BTreeMap;

use rerouter_base::money::{dollars, nano_usd};
use rerouter_base::usage_kind::{UsageKind, UsageUnit};
use rerouter_dialect::usage::{Usage, UsageExtra, may_multiply};
use rerouter_document::kinds::reader;
use rerouter_document::{Diagnostics, KeyTable, Section, TableRow, ValueKind};
use serde_json::json;

/// The price of each kind of usage in US dollars. `None` is unknown, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindPrices([Option<f64>; UsageKind::ALL.len()]);

impl KindPrices {
    pub fn each(of: impl Fn(UsageKind) -> Option<f64>) -> Self {
        KindPrices(UsageKind::ALL.map(of))
    }

    /// The own price of a kind.
    pub fn get(&self, kind: UsageKind) -> Option<f64> {
        self.0.get(kind as usize).copied().flatten()
    }

    /// The price of a part of the prompt or the answer: its own, or that of a part which it is
    /// within. `None` if it costs the same as other tokens.
    fn of_part(&self, kind: UsageKind) -> Option<f64> {
        let within = *kind.within().first()?;
        self.get(kind).or_else(|| self.of_part(within))
    }
}

impl KeyTable for KindPrices {
    fn read(section: &mut Section<'_>, faults: &mut Diagnostics<'_>) -> Option<Self> {
        let price = price();
        let read = |kind: UsageKind| section.read(kind.price(), faults, |f, p| price.read(f, p));
        Some(KindPrices(UsageKind::ALL.map(read)))
    }

    fn rows() -> Vec<TableRow> {
        let row =
            |kind: UsageKind| TableRow::section(kind.price(), kind.about_price(), price().schema());
        UsageKind::ALL.map(row).into()
    }
}

/// A price in US dollars or a factor, at least 0.
pub(super) fn price() -> impl ValueKind<Value = f64> {
    reader(
        || json!({ "type": "number", "minimum": 0 }),
        |field, faults| {
            let price = field.number(faults)?;
            if price < 0.0 {
                let hint = "leave out a price that is unknown";
                field.reject(faults, "a price cannot be negative", hint);
            }
            Some(price)
        },
    )
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    pub base: KindPrices,
    /// The whole prices for prompts of more than this many tokens, shortest first.
    pub tiers: Vec<(u64, KindPrices)>,
    /// Factors of the prices of tokens, by members of the request and their values.
    pub multipliers: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Prices {
    /// Sets the prices of a tier: those that it leaves out are the base prices.
    pub fn tier(&mut self, above: u64, prices: &KindPrices) {
        let whole = KindPrices::each(|kind| prices.get(kind).or(self.base.get(kind)));
        self.tiers.push((above, whole));
        self.tiers.sort_by_key(|(above, _)| *above);
    }

    fn of_prompt(&self, tokens: u64) -> &KindPrices {
        let tier = self.tiers.iter().rev().find(|(above, _)| *above < tokens);
        tier.map_or(&self.base, |(_, prices)| prices)
    }

    /// The factor of a mode; `None` if it is not known. Modes that never multiply have 1.
    pub fn factor(&self, member: &str, mode: &str) -> Option<f64> {
        let known = self.multipliers.get(member).and_then(|factors| factors.get(mode));
        known.copied().or_else(|| (!may_multiply(mode)).then_some(1.0))
    }

    /// Cost of an answer in dollars, rounded to whole nano-dollars, whatever its provider says that
    /// it cost. `None` if a required price is unknown.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        let prices = self.of_prompt(usage.prompt_tokens);
        let input = prices.get(UsageKind::Input)?;
        let (mut prompt, mut answer) = (usage.prompt_tokens, usage.output_tokens());
        let (mut tokens, mut pieces) = (0.0, prices.get(UsageKind::Request).unwrap_or(0.0));
        for kind in UsageKind::ALL {
            let Some(used) = usage.counts.get(kind) else { continue };
            let rest = match kind.unit() {
                UsageUnit::Prompt => &mut prompt,
                UsageUnit::Answer => &mut answer,
                UsageUnit::Piece => {
                    pieces += used as f64 * prices.get(kind).unwrap_or(0.0);
                    continue;
                }
            };
            let Some(price) = prices.of_part(kind) else { continue };
            let parts = UsageKind::ALL.into_iter().filter(|part| part.within().contains(&kind));
            let apart: u64 = parts.filter_map(|part| usage.counts.get(part)).sum();
            let used = used.saturating_sub(apart).min(*rest);
            *rest -= used;
            tokens += used as f64 * price;
        }
        tokens += prompt as f64 * input;
        // Embedding models have no output price.
        if answer > 0 {
            tokens += answer as f64 * prices.get(UsageKind::Output)?;
        }
        Some(dollars(nano_usd(tokens * self.factor_of(&usage.extra) / 1e6 + pieces / 1e3)))
    }

    fn factor_of(&self, extra: &UsageExtra) -> f64 {
        let factor = |(member, mode): (&String, &String)| self.factor(member, mode).unwrap_or(1.0);
        extra.modes.iter().map(factor).product()
    }

    /// The dearest price of the tokens of a unit, for a prompt of up to this many tokens. `used`
    /// says which parts there may be.
    pub fn dearest(
        &self,
        tokens: u64,
        unit: UsageUnit,
        used: impl Fn(UsageKind) -> bool,
    ) -> Option<f64> {
        let base = if unit == UsageUnit::Answer { UsageKind::Output } else { UsageKind::Input };
        let kinds = || UsageKind::ALL.into_iter().filter(|kind| kind.unit() == unit);
        let price = |prices: &KindPrices, kind| prices.get(kind).filter(|_| used(kind));
        let all = self
            .up_to(tokens)
            .flat_map(|prices| kinds().filter_map(move |kind| price(prices, kind)));
        self.base.get(base).map(|price| all.fold(price, f64::max))
    }

    /// The prices of prompts of up to this many tokens.
    fn up_to(&self, tokens: u64) -> impl Iterator<Item = &KindPrices> {
        let reached = self.tiers.iter().filter(move |(above, _)| *above < tokens);
        reached.map(|(_, prices)| prices).chain([&self.base])
    }

    /// The dearest price of the request itself in dollars, for a prompt of up to this many tokens.
    pub fn of_request(&self, tokens: u64) -> f64 {
        let prices = self.up_to(tokens).filter_map(|prices| prices.get(UsageKind::Request));
        prices.fold(0.0, f64::max) / 1e3
    }

    /// Whether nothing has a price above 0.
    pub fn is_free(&self) -> bool {
        self.up_to(u64::MAX).all(|prices| prices.0.iter().flatten().all(|price| *price == 0.0))
    }

    /// Whether each mode has a factor.
    pub fn knows_modes(&self, extra: &UsageExtra) -> bool {
        extra.modes.iter().all(|(member, mode)| self.factor(member, mode).is_some())
    }
}

/// What a provider bills: the cost that it tells, else that by the prices. `None` if a required
/// price is unknown.
pub fn bill(prices: Option<&Prices>, usage: &Usage) -> Option<f64> {
    let told = usage.extra.cost_usd.map(|cost| dollars(nano_usd(cost)));
    told.or_else(|| prices?.cost(usage))
}

/// Whether the usage holds something that the prices do not count: a member of unknown meaning, a
/// mode without a factor, or pieces without a price.
pub fn is_unknown(prices: Option<&Prices>, usage: &Usage) -> bool {
    let Usage { counts, extra, .. } = usage;
    let is_paid = |kind: UsageKind| {
        let used = counts.get(kind).unwrap_or(0);
        used == 0 || prices.is_some_and(|prices| prices.base.get(kind).is_some())
    };
    let mut pieces = UsageKind::ALL.into_iter().filter(|kind| kind.unit() == UsageUnit::Piece);
    let mut is_priced =
        || pieces.all(is_paid) && prices.is_none_or(|prices| prices.knows_modes(extra));
    !extra.unknown.is_empty() || (extra.cost_usd.is_none() && !is_priced())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_base::usage_kind::UsageCounts;

    const MILLION: u64 = 1_000_000;

    /// Prices of one dollar, four for answers, and these.
    fn prices(of: &[(UsageKind, f64)]) -> Prices {
        let base = KindPrices::each(|kind| match kind {
            UsageKind::Input => Some(1.0),
            UsageKind::Output => Some(4.0),
            _ => of.iter().find(|(priced, _)| *priced == kind).map(|(_, price)| *price),
        });
        Prices { base, ..Prices::default() }
    }

    fn usage(prompt: u64, answer: u64, counts: &[(UsageKind, u64)]) -> Usage {
        let mut told = UsageCounts::default();
        counts.iter().for_each(|(kind, count)| told.set(*kind, *count));
        Usage {
            prompt_tokens: prompt,
            completion_tokens: answer,
            total_tokens: prompt + answer,
            counts: told,
            ..Usage::default()
        }
    }

    #[test]
    fn each_kind_costs_its_price_or_that_of_what_it_is_within() {
        use UsageKind::{
            CacheWrite, CacheWrite1h, Cached, CachedAudio, InputAudio, InputImage, OutputAudio,
            Reasoning, Request, WebSearch,
        };
        let parts = [
            (Cached, 400_000),
            (CachedAudio, 100_000),
            (InputAudio, 300_000),
            (CacheWrite, 200_000),
            (CacheWrite1h, 50_000),
            (InputImage, 500_000),
            (Reasoning, 100_000),
            (OutputAudio, 200_000),
            (WebSearch, 3),
        ];
        let used = usage(MILLION, MILLION, &parts);
        for (of, cost) in [
            (vec![], 5.0),
            (vec![(Cached, 0.1)], 0.6 + 0.04 + 4.0),
            // Cached audio costs as other cached tokens, and is no part of the dear audio.
            (vec![(Cached, 0.1), (InputAudio, 10.0)], 0.04 + 2.0 + 0.4 + 4.0),
            (vec![(Cached, 0.1), (CachedAudio, 2.0)], 0.03 + 0.2 + 0.6 + 4.0),
            (vec![(CacheWrite, 2.0)], 0.4 + 0.8 + 4.0),
            (vec![(CacheWrite, 2.0), (CacheWrite1h, 4.0)], 0.3 + 0.2 + 0.8 + 4.0),
            (vec![(Reasoning, 9.0), (OutputAudio, 20.0)], 1.0 + 0.9 + 4.0 + 2.8),
            (vec![(WebSearch, 10.0), (Request, 5.0)], 5.0 + 0.03 + 0.005),
        ] {
            let found = prices(&of).cost(&used).unwrap();
            assert!((found - cost).abs() < 1e-9, "{of:?}: {found}, not {cost}");
        }
    }

    #[test]
    fn a_required_price_is_never_guessed() {
        let without = |kind: UsageKind| {
            let all = prices(&[]).base;
            let base = KindPrices::each(|other| all.get(other).filter(|_| other != kind));
            Prices { base, ..Prices::default() }
        };
        assert_eq!(without(UsageKind::Input).cost(&usage(1, 1, &[])), None);
        assert_eq!(without(UsageKind::Output).cost(&usage(1, 1, &[])), None);
        assert!(without(UsageKind::Output).cost(&usage(1, 0, &[])).is_some());
        // Thinking that only the total counts.
        let thinking = Usage { total_tokens: 3 * MILLION, ..usage(MILLION, 0, &[]) };
        assert_eq!(prices(&[]).cost(&thinking), Some(9.0));
    }

    #[test]
    fn long_prompts_modes_and_told_costs_change_the_bill() {
        let mut all = prices(&[(UsageKind::WebSearch, 10.0)]);
        all.tier(MILLION, &KindPrices::each(|kind| (kind == UsageKind::Input).then_some(2.0)));
        let flex = [("flex".to_owned(), 0.5)].into();
        all.multipliers.insert("service_tier".to_owned(), flex);
        let mut used = usage(MILLION, MILLION, &[(UsageKind::WebSearch, 1)]);
        assert_eq!(all.cost(&used), Some(5.01));
        used.prompt_tokens += MILLION;
        used.total_tokens += MILLION;
        assert_eq!(all.cost(&used), Some(8.01));
        used.extra.modes.insert("service_tier".to_owned(), "flex".to_owned());
        assert_eq!(all.cost(&used), Some(4.01), "searches cost the same");
        assert!(!is_unknown(Some(&all), &used));
        used.extra.modes.insert("speed".to_owned(), "fast".to_owned());
        assert!(is_unknown(Some(&all), &used) && is_unknown(None, &used));
        used.extra.cost_usd = Some(0.3);
        assert!(!is_unknown(None, &used));
        assert_eq!((bill(Some(&all), &used), bill(None, &used)), (Some(0.3), Some(0.3)));
    }
}
