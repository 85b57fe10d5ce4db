//! Verdicts of a gate as JUnit XML, which CI systems display.

use std::fmt::Write;

use super::gate::GateVerdict;

/// The XML for a gate. `failure` is the reason why there was no report to judge.
pub(super) fn render(verdicts: &[GateVerdict], failure: Option<&str>) -> String {
    let broken = verdicts.iter().filter(|verdict| !verdict.holds()).count();
    let (tests, errors) =
        (verdicts.len() + usize::from(failure.is_some()), usize::from(failure.is_some()));
    let counts = format!("tests=\"{tests}\" failures=\"{broken}\" errors=\"{errors}\"");
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  \
         <testsuite name=\"rerouter replay evaluate\" {counts}>\n"
    );
    let mut case = |name: &str, outcome: Option<(&str, &str)>| {
        let case = format!("    <testcase classname=\"rerouter.evaluate\" name=\"{name}\"");
        // Writing to a string cannot fail.
        let _ = match outcome {
            None => writeln!(text, "{case}/>"),
            Some((kind, why)) => {
                writeln!(text, "{case}><{kind} message=\"{}\"/></testcase>", escaped(why))
            }
        };
    };
    for GateVerdict { name, broken } in verdicts {
        case(name, broken.as_deref().map(|why| ("failure", why)));
    }
    if let Some(why) = failure {
        case("evaluate", Some(("error", why)));
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// Text of an attribute. XML 1.0 cannot express most control characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' | '\r' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_counts_and_escapes() {
        let verdicts = [
            GateVerdict { name: "captures", broken: None },
            GateVerdict { name: "max-changed", broken: Some("3 > 2 & \"so\"\u{1b}<".into()) },
        ];
        let text = render(&verdicts, None);
        assert!(
            text.contains(
                "<testsuite name=\"rerouter replay evaluate\" tests=\"2\" \
            failures=\"1\" errors=\"0\">"
            ),
            "{text}"
        );
        assert!(text.contains("name=\"captures\"/>"), "{text}");
        assert!(
            text.contains("<failure message=\"3 &gt; 2 &amp; &quot;so&quot;\u{fffd}&lt;\"/>"),
            "{text}"
        );
        let text = render(&[], Some("no gateway"));
        assert!(
            text.contains("tests=\"1\" failures=\"0\" errors=\"1\"")
                && text.contains("<error message=\"no gateway\"/>"),
            "{text}"
        );
    }
}
