//! Inputs of decisions, for the unit tests of all crates.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::inputs::{Inputs, PrincipalFacts, RequestFacts};

/// Inputs of an ordinary chat request.
pub fn chat(model: &str, seed: u64) -> Inputs {
    Inputs {
        version: Inputs::VERSION,
        at: Timestamp::from_second(1_764_000_000).unwrap(),
        request: RequestFacts {
            endpoint: "chat.completions".into(),
            model: model.into(),
            name: model.into(),
            prompt_tokens: 12,
            messages: 1,
            ..RequestFacts::default()
        },
        keywords: BTreeMap::new(),
        texts: BTreeMap::new(),
        principal: PrincipalFacts {
            key: Some("key_1".into()),
            user: Some("usr_1".into()),
            ..PrincipalFacts::default()
        },
        seed,
        health: BTreeMap::new(),
    }
}
