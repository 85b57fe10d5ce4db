//! Streams of each protocol, recorded ones among them.

use super::*;

/// Runs an answer of this endpoint. Another target could be tried after it.
fn run_of(
    endpoint: Endpoint,
    end: End,
    body: &[u8],
    chunks: &[usize],
    batches: &[usize],
) -> Became {
    run(
        Made { end, rules: Rules { dialect: endpoint.dialect(), ..RULES }, ..STREAM },
        body,
        chunks,
        batches,
    )
}

#[test]
fn every_recorded_stream_is_the_clients_and_the_capture_s_however_it_comes() {
    for exchange in recorded::streams() {
        let (endpoint, body) = (exchange.endpoint(), exchange.response.as_bytes());
        let whole = assemble(endpoint, body);
        for (chunks, batches) in
            [(&[][..], &[][..]), (&[11, 2], &[7]), (&[97, 3], &[1, 2]), (&[4000], &[1])]
        {
            let became = run_of(endpoint, End::Done, body, chunks, batches);
            assert!(became.bytes == body && became.copy == body && became.ended, "{}", exchange.id);
            assert_eq!((became.error, became.between_events), (None, true), "{}", exchange.id);
            assert!(assemble(endpoint, &became.copy) == whole, "{}", exchange.id);
        }
        let collect = Made {
            rules: Rules { dialect: endpoint.dialect(), mode: Mode::Collect, ..RULES },
            ..STREAM
        };
        assert_eq!(
            run(collect, body, &[1000], &[3]).collected,
            Some((200, body.to_vec())),
            "{}",
            exchange.id
        );
    }
}

#[test]
fn a_recorded_stream_without_its_last_event_broke_off() {
    for exchange in recorded::streams().into_iter().filter(|exchange| exchange.kind != "chat") {
        let text = exchange.response.trim_end();
        let body = &text.as_bytes()[..text.rfind("\n\n").unwrap() + 2];
        for end in [End::Done, End::Flag] {
            let became = run_of(exchange.endpoint(), end, body, &[500], &[2]);
            assert_eq!(
                (became.error, became.ended, became.bytes == body),
                (error(CUT), false, true),
                "{}",
                exchange.id
            );
        }
        // The beginning alone is not enough: another target answers.
        let start = exchange.response.split_inclusive("\n\n").next().unwrap();
        let became = run_of(exchange.endpoint(), End::Done, start.as_bytes(), &[500], &[2]);
        assert_eq!((became.error, became.head), (error(CUT), false), "{}", exchange.id);
    }
}

#[test]
fn an_error_of_each_protocol_before_content_is_given_up_and_after_it_passes() {
    let event = |kind: &str, members: &str| {
        format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{members}}}\n\n")
    };
    let message = event("message_start", r#""message":{"usage":{"input_tokens":3}}"#);
    let block =
        event("content_block_start", r#""index":0,"content_block":{"type":"text","text":""}"#);
    let text =
        event("content_block_delta", r#""index":0,"delta":{"type":"text_delta","text":"a"}"#);
    let overloaded =
        event("error", r#""error":{"type":"overloaded_error","message":"Overloaded"}"#);
    let created = event("response.created", r#""response":{}"#);
    let delta = event("response.output_text.delta", r#""delta":"a""#);
    let failed =
        event("response.failed", r#""response":{"error":{"code":"server_error","message":"Oh"}}"#);
    for (endpoint, before, content, last) in [
        (Endpoint::Messages, message + &block, &text, &overloaded),
        (Endpoint::Responses, created, &delta, &failed),
    ] {
        for batches in [&[][..], &[1]] {
            let became =
                run_of(endpoint, End::Done, [&*before, last].concat().as_bytes(), &[30], batches);
            assert_eq!((became.head, became.error), (false, error(IN_BAND)), "{endpoint:?}");
            let body = [&*before, content, last].concat();
            let became = run_of(endpoint, End::Done, body.as_bytes(), &[30], batches);
            assert_eq!(
                (became.bytes == body.as_bytes(), became.ended, became.error),
                (true, true, None),
                "{endpoint:?}"
            );
        }
    }
}
