//! The series of the label of keys that the server document names.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::families::LabelMetrics;

/// Most values with series of their own. People choose the values, and Prometheus keeps each
/// forever. A hundred teams fit, and a label that is different for each key does no harm.
const VALUES: usize = 100;
/// The value that all further values count as.
const OTHER: &str = "other";

#[derive(Debug)]
pub(super) struct LabelMeters {
    series: LabelMetrics,
    /// The values with series of their own.
    values: Mutex<HashSet<String>>,
}

impl LabelMeters {
    pub(super) fn new(series: LabelMetrics) -> Self {
        LabelMeters { series, values: Mutex::default() }
    }

    pub(super) fn used(&self, value: &str, requests: u64, tokens: u64, usd: f64) {
        let value = [if self.is_known(value) { value } else { OTHER }];
        self.series.requests.with_label_values(&value).inc_by(requests);
        self.series.tokens.with_label_values(&value).inc_by(tokens);
        self.series.cost.with_label_values(&value).inc_by(usd);
    }

    /// Whether the value has series of its own. The first values get them.
    fn is_known(&self, value: &str) -> bool {
        if value.is_empty() {
            return true;
        }
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.contains(value) || (values.len() < VALUES && values.insert(value.to_owned()))
    }
}
