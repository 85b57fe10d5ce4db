//! Warnings: parts of a document that are valid but likely mistakes.

use crate::base_url::BaseUrl;
use crate::document::{RuleSpec, Strategy};
use crate::name_patterns::beginning;
use crate::price_list;
use crate::prices::Prices;
use crate::provider::Provider;
use rerouter_base::secret::Secret;
use rerouter_base::usage_kind::UsageKind;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_document::{Finding, Located, did_you_mean};

/// Warns of a base URL that ends in an endpoint, as copied from a provider's documentation. The
/// gateway appends the endpoint itself.
pub(super) fn of_base(url: &Located<Secret>, base: &BaseUrl) -> Option<Finding> {
    // In reverse, so that `/messages/count_tokens` is tried before `/messages`.
    let found = Endpoint::ALL
        .iter()
        .rev()
        .map(|endpoint| endpoint.path())
        .find(|path| base.path.ends_with(*path))?;
    let message = format!("the URL ends in `{found}`, which the gateway appends itself");
    Some(url.fault(message).hint(Some(format!("leave `{found}` out"))))
}

/// Warns of a model without a price for prompts. The mock is free. A target under a pattern may
/// have a shipped price.
pub(super) fn of_price(
    name: &Located<String>,
    provider: &Provider,
    prices: Option<&Prices>,
) -> Option<Finding> {
    let is_listed = beginning(&name.value).is_some() && provider.price_list.is_some();
    if !provider.protocol.is_remote()
        || is_listed
        || prices.is_some_and(|prices| prices.base.get(UsageKind::Input).is_some())
    {
        return None;
    }
    let model = &name.value;
    let message = format!(
        "no price is known for `{model}`: its cost stays unknown, and keys with a budget are \
        refused"
    );
    // A name with other digits is another model, not a typo.
    let digits = |name: &str| name.chars().filter(char::is_ascii_digit).collect::<String>();
    let wanted = model.split_once('/').map_or("", |(_, model)| model);
    let listed = price_list::models(provider.price_list);
    let meant = did_you_mean(wanted, listed.filter(|known| digits(known) == digits(wanted)));
    let hint = format!(
        "{}models: {{ {model}: {{ input_per_mtok: …, output_per_mtok: … }} }}; \
        0 where it costs nothing",
        meant.map_or_else(String::new, |meant| format!("{meant} Else write "))
    );
    Some(name.fault(message).hint(Some(hint)))
}

/// Warns of a target without a weight among others that have one.
pub(super) fn of_weights(rule: &RuleSpec) -> Option<Finding> {
    let without = rule.targets.iter().find(|target| target.weight.is_none())?;
    let some = rule.targets.iter().any(|target| target.weight.is_some());
    let warning =
        without.target.fault("has no weight and counts as 1, while others of this rule have one");
    (rule.strategy == Strategy::Weighted && some).then(|| warning.hint(Some("weight: 1")))
}
