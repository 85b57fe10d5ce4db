//! A recorded decision, with the facts that are known about it.

use std::sync::Arc;

use super::judge::target_name;
use rerouter_captures::capture::record::{Attempt, Head};
use rerouter_routing::{Decision, Inputs, Routing, Target};

pub(super) struct DecidedCase<'a> {
    pub(super) head: &'a Head,
    pub(super) inputs: &'a Inputs,
    pub(super) decision: &'a Decision,
    pub(super) document: Option<&'a Routing>,
}

/// The name of the first target of a decision.
pub(super) fn first(decision: &Decision) -> String {
    target_name(&decision.provider, &decision.model)
}

impl DecidedCase<'_> {
    pub(super) fn target(&self, name: &str) -> Option<Arc<Target>> {
        self.document?.target_for(name)
    }

    pub(super) fn served(&self) -> Option<String> {
        let served = self.head.served.as_ref()?;
        Some(target_name(&served.provider, &served.model))
    }

    pub(super) fn attempts<'c>(&'c self, name: &'c str) -> impl Iterator<Item = &'c Attempt> {
        let is_of =
            move |attempt: &&Attempt| target_name(&attempt.provider, &attempt.model) == name;
        self.head.attempts.iter().filter(is_of)
    }
}
