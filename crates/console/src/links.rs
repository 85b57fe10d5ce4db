//! Paths of pages, with a query.

use rerouter_base::url::encode;

/// Adds the parameters that are not empty to a path.
pub(super) fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", encode(value))).collect();
    match pairs.is_empty() {
        true => path.to_owned(),
        false if path.contains('?') => format!("{path}&{}", pairs.join("&")),
        false => format!("{path}?{}", pairs.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_is_left_out() {
        assert_eq!(with_query("/a", &[("b", ""), ("c", "")]), "/a");
        assert_eq!(with_query("/a", &[("b", "x y&z"), ("c", "")]), "/a?b=x%20y%26z");
    }
}
