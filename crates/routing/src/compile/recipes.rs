//! Compiles recipes, their rules and expressions.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::compiler::Compiler;
use super::warnings;
use crate::compiled::{Recipe, Rule, Shadow, WeightedTarget};
use crate::condition::{Compiled, Condition, Flaw, StickyKey};
use crate::document::{RecipeSpec, RuleSpec, Strategy, TargetSpec};
use crate::request_head::header_of;
use crate::target::translated;
use rerouter_document::{Located, did_you_mean};

/// Largest weight of a target.
pub const WEIGHT_MAX: f64 = 1_000_000.0;
/// Maximum number of patterns for texts of requests in a routing document.
const CONTENT_PATTERNS: usize = 32;

impl Compiler<'_> {
    pub(super) fn recipe(&mut self, spec: RecipeSpec) -> Recipe {
        self.plain_name(&spec.name, "recipe");
        self.rule_order(&spec);
        let rules: Vec<Rule> = spec.rules.into_iter().map(|rule| self.rule(rule)).collect();
        let shadow = spec.shadow.and_then(|shadow| {
            let (target, template) = self.rule_target(&shadow.target)?;
            Some(Shadow { target, template, percent: shadow.percent })
        });
        let targets = rules.iter().flat_map(|rule| &rule.choices).map(|choice| &choice.target);
        let translated = translated(targets.chain(shadow.as_ref().map(|shadow| &shadow.target)));
        Recipe {
            shown: header_of(&spec.name.value),
            name: spec.name.value.as_str().into(),
            rules,
            retry: spec.retry,
            shadow,
            translated,
            budget: OnceLock::new(),
        }
    }

    /// Checks that names and conditions are unique, and that exactly the last rule has no
    /// condition.
    fn rule_order(&mut self, spec: &RecipeSpec) {
        if spec.rules.is_empty() {
            let hint = "for example `{ name: default, targets: [{ target: openai/gpt-5-mini }] }`";
            self.fault(&spec.name, "a recipe needs at least one rule", hint);
        }
        let mut names: HashSet<&str> = HashSet::new();
        let mut conditions: HashMap<&str, &str> = HashMap::new();
        let mut always: Option<&str> = None;
        for rule in &spec.rules {
            self.plain_name(&rule.name, "rule");
            if !names.insert(&rule.name.value) {
                let message = format!("duplicate rule name `{}`", rule.name.value);
                self.fault(&rule.name, message, "choose another name");
            }
            if let Some(before) = always {
                let message = format!("never reached: `{before}` before it always matches");
                self.fault(&rule.name, message, "move it up, or remove it");
            }
            let Some(when) = &rule.when else {
                always = Some(&rule.name.value);
                continue;
            };
            if let Some(before) = conditions.insert(when.value.trim(), &rule.name.value) {
                let message = format!("never reached: `{before}` before it has the same `when`");
                self.fault(when, message, "change it, or remove the rule");
            }
        }
        if let (None, Some(last)) = (always, spec.rules.last()) {
            let hint = "add a last rule without `when`, for what no other rule matches";
            self.fault(&last.name, "the last rule must have no `when`", hint);
        }
    }

    fn rule(&mut self, spec: RuleSpec) -> Rule {
        let when = spec
            .when
            .as_ref()
            .and_then(|when| self.compiled(when, Condition::compile(&when.value)));
        let key = self.sticky_key(&spec);
        if spec.targets.is_empty() {
            let hint = "for example `targets: [{ target: openai/gpt-5-mini }]`";
            self.fault(&spec.name, "a rule needs at least one target", hint);
        }
        self.weights(&spec);
        self.warnings.extend(warnings::of_weights(&spec));
        let mut seen = HashSet::new();
        let mut choices = Vec::with_capacity(spec.targets.len());
        for TargetSpec { target, weight } in &spec.targets {
            if !seen.insert(target.value.as_str()) {
                let message = format!("duplicate target `{}`", target.value);
                self.fault(target, message, "remove one of them");
                continue;
            }
            let weight = weight.as_ref().map_or(1.0, |weight| weight.value);
            let found = self.rule_target(target);
            choices.extend(found.map(|(target, template)| WeightedTarget {
                target,
                weight,
                template,
            }));
        }
        Rule {
            name: spec.name.value.as_str().into(),
            header: header_of(&spec.name.value),
            when,
            strategy: spec.strategy,
            key,
            has_template: choices.iter().any(|choice| choice.template.is_some()),
            choices,
        }
    }

    /// The compiled expression. Reports its flaws, and unknown keyword sets and headers that it
    /// names.
    fn compiled<E: Compiled>(
        &mut self,
        text: &Located<String>,
        compiled: Result<E, Vec<Flaw>>,
    ) -> Option<E> {
        let expression = match compiled {
            Ok(expression) => expression,
            Err(flaws) => {
                let example = "CEL over the signals, for example `prompt_tokens > 1000 && !stream`";
                for flaw in flaws {
                    self.fault(text, flaw.message, flaw.hint.unwrap_or_else(|| example.to_owned()));
                }
                return None;
            }
        };
        let uses = expression.uses();
        self.signals.language |= uses.language;
        self.signals.keywords |= uses.keywords;
        self.header_names.extend(uses.headers.iter().cloned());
        for (part, pattern) in &uses.patterns {
            self.content.add(*part, pattern);
        }
        if self.content.len() > CONTENT_PATTERNS {
            let message = format!("more than {} patterns for texts", CONTENT_PATTERNS);
            self.fault(text, message, "join some: 'first|second'");
        }
        for set in &uses.sets {
            if !self.set_names.contains(set) {
                let hint = did_you_mean(set, self.set_names.iter().map(String::as_str))
                    .unwrap_or_else(|| "it is not in `keywords`".to_owned());
                self.fault(text, format!("unknown keyword set `{set}`"), hint);
            }
        }
        let known = self.origin.signal_headers;
        for header in uses.headers.iter().filter(|header| !known.contains(header)) {
            let list = "`routing.signal_headers` of the server document";
            let hint = did_you_mean(header, known.iter().map(String::as_str))
                .unwrap_or_else(|| "add it there".to_owned());
            self.fault(text, format!("the header `{header}` is not in {list}"), hint);
        }
        Some(expression)
    }

    fn sticky_key(&mut self, spec: &RuleSpec) -> Option<StickyKey> {
        match (&spec.key, spec.strategy) {
            (Some(key), Strategy::Sticky) => self.compiled(key, StickyKey::compile(&key.value)),
            (Some(key), other) => {
                let message = format!("`{}` does not use a key", other.as_str());
                self.fault(key, message, "strategy: sticky");
                None
            }
            (None, Strategy::Sticky) => {
                let message = "a `sticky` rule needs a `key`";
                self.fault(&spec.name, message, "for example `key: user.id`");
                None
            }
            (None, _) => None,
        }
    }

    fn weights(&mut self, spec: &RuleSpec) {
        let written: Vec<&Located<f64>> =
            spec.targets.iter().filter_map(|target| target.weight.as_ref()).collect();
        for weight in &written {
            if spec.strategy != Strategy::Weighted {
                let message = format!("`{}` does not use weights", spec.strategy.as_str());
                self.fault(weight, message, "strategy: weighted");
            } else if !(0.0..=WEIGHT_MAX).contains(&weight.value) {
                let message = format!("a weight is from 0 to {}", WEIGHT_MAX);
                self.fault(weight, message, "for example `9`");
            }
        }
        let all_zero = !written.is_empty()
            && written.len() == spec.targets.len()
            && written.iter().all(|weight| weight.value == 0.0);
        if let (true, Strategy::Weighted, Some(first)) = (all_zero, spec.strategy, written.first())
        {
            let message = "the weights of this rule sum to 0";
            self.fault(first, message, "give one target a weight above 0");
        }
    }
}
