use proptest::prelude::*;
use regex::Regex;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn written(context: &TraceContext, attempt: usize) -> (String, Option<String>) {
    let mut headers = HeaderMap::new();
    context.write(attempt, &mut headers);
    let text = |name: &HeaderName| headers.get(name).map(|v| v.to_str().unwrap().to_owned());
    (text(&TRACEPARENT).unwrap(), text(&TRACESTATE))
}

#[test]
fn a_client_s_trace_is_continued_with_our_spans() {
    let random = Random::seeded(1);
    let sent = headers(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b@c=2")]);
    let context = TraceContext::of(&sent, &random, 0.0);
    assert_eq!(context.trace.to_string(), &PARENT[3..35]);
    assert_eq!(context.parent.unwrap().to_string(), &PARENT[36..52]);
    assert!(context.sampled, "the client decides");
    let (first, state) = written(&context, 0);
    assert_eq!(state.as_deref(), Some("a=1,b@c=2"));
    let (trace, parent, sampled) = parse(&first).unwrap();
    assert_eq!((trace, parent, sampled), (context.trace, context.attempt(0), true));
    let second = written(&context, 1).0;
    assert!(first != second && !second.contains(&context.span.to_string()), "{first} {second}");
    let within = context.within(&random);
    assert_eq!((within.trace, within.parent), (context.trace, Some(context.span)));
    assert_ne!(within.span, context.span);
}

#[test]
fn without_a_trace_a_share_is_sampled() {
    let random = Random::seeded(2);
    let share = |share: f64| {
        let sampled = |_: &u32| TraceContext::of(&HeaderMap::new(), &random, share).sampled;
        (0..2_000).filter(sampled).count()
    };
    assert_eq!((share(0.0), share(1.0)), (0, 2_000));
    let tenth = share(0.1);
    assert!((120..280).contains(&tenth), "{tenth}");
    let unsampled = PARENT.replace("-01", "-00");
    let context = TraceContext::of(&headers(&[("traceparent", &unsampled)]), &random, 1.0);
    assert!(!context.sampled && written(&context, 0).0.ends_with("-00"));
}

#[test]
fn what_is_malformed_begins_a_new_trace() {
    let random = Random::seeded(3);
    let twice = headers(&[("traceparent", PARENT), ("traceparent", PARENT)]);
    let begins = |headers: &HeaderMap| {
        let context = TraceContext::of(headers, &random, 1.0);
        context.parent.is_none() && written(&context, 0).1.is_none()
    };
    assert!(begins(&twice));
    for bad in [
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
    ] {
        let sent = headers(&[("traceparent", bad), ("tracestate", "a=1")]);
        assert!(begins(&sent), "{bad}");
    }
    let later = PARENT.replacen("00", "cc", 1) + "-more";
    assert!(parse(&later).is_some());
    for bad in ["novalue", "=1", "", &"a=1,".repeat(40), &format!("a={}", "x".repeat(600))] {
        let sent = headers(&[("traceparent", PARENT), ("tracestate", bad)]);
        assert_eq!(written(&TraceContext::of(&sent, &random, 1.0), 0).1, None, "{bad}");
    }
}

proptest! {
    /// Compares the parser with the standard's grammar, as a regular expression.
    #[test]
    fn a_traceparent_is_what_the_grammar_says(
        text in "(00|01|ff|0g)-[0-9a-fA]{31,33}-(0{16}|[0-9a-f]{15,17})-[0-9a-f]{2}(-|-x|x)?"
    ) {
        let grammar = Regex::new(
            "^(00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\
             |01-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?)$",
        ).unwrap();
        let expected = grammar.captures(&text).is_some_and(|found| {
            let part = |a, b| found.get(a).or(found.get(b)).unwrap().as_str();
            [part(2, 4), part(3, 5)].iter().all(|id| id.contains(|c| c != '0'))
        });
        prop_assert_eq!(parse(&text).is_some(), expected);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut sent = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(&bytes) {
            sent.insert(&TRACEPARENT, value.clone());
            sent.insert(&TRACESTATE, value);
        }
        let context = TraceContext::of(&sent, &Random::seeded(4), 0.5);
        prop_assert!(parse(&written(&context, 0).0).is_some());
    }
}
