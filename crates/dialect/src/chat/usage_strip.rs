//! Removes the usage chunk from a stream, if the gateway requested it and the client did not. All
//! other bytes pass unchanged: comments, line ends, chunks with usage beside content.

use bytes::{Bytes, BytesMut};
use memchr::memmem;

use super::super::Dialect;
use super::super::stream::{EventKind, classify};
use crate::wire::sse::{Splitter, SseEvent};

/// An event is held until it is complete.
#[derive(Debug, Default)]
pub struct UsageStrip {
    splitter: Splitter,
}

impl UsageStrip {
    pub fn feed(&mut self, chunk: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(chunk.len());
        self.splitter.feed(chunk, |event| pass(event, &mut out));
        out.freeze()
    }

    pub fn finish(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        self.splitter.finish(|event| {
            if !event.is_cut() {
                pass(event, &mut out);
            }
        });
        out.freeze()
    }
}

fn pass(event: SseEvent<'_>, out: &mut BytesMut) {
    let bytes = event.bytes();
    // An event that comes in pieces is larger than any usage chunk.
    let may = !matches!(event, SseEvent::Piece(_)) && memmem::find(bytes, b"\"usage\"").is_some();
    if may && classify(Dialect::Chat, bytes) == EventKind::Usage {
        // Comments in the same event are kept.
        let end = if bytes.contains(&b'\n') { b'\n' } else { b'\r' };
        for line in bytes.split_inclusive(|byte| *byte == end).filter(|line| line.starts_with(b":"))
        {
            out.extend_from_slice(line);
        }
    } else {
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONTENT: &str =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n";
    const LAST: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\
        \"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n";
    const FILTER: &str = "data: {\"choices\":[],\"prompt_filter_results\":[{}],\"usage\":null}\n\n";
    const USAGE: &str =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn strip(stream: &str, sizes: &[usize]) -> String {
        let (mut strip, mut out) = (UsageStrip::default(), Vec::new());
        let (mut rest, mut sizes) = (stream.as_bytes(), sizes.iter().cycle());
        while !rest.is_empty() {
            let (chunk, after) =
                rest.split_at(sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len()));
            out.extend_from_slice(&strip.feed(chunk));
            rest = after;
        }
        out.extend_from_slice(&strip.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_chunk_of_the_usage_goes_and_nothing_else_does() {
        for sizes in [&[][..], &[1], &[7, 50]] {
            for (stream, left) in [
                ([CONTENT, LAST, USAGE, DONE].concat(), [CONTENT, LAST, DONE].concat()),
                (
                    [FILTER, CONTENT, ": ping\n\n", USAGE, ": ping\n\n", DONE].concat(),
                    [FILTER, CONTENT, ": ping\n\n: ping\n\n", DONE].concat(),
                ),
                ([CONTENT, LAST, DONE].concat(), [CONTENT, LAST, DONE].concat()),
                // A comment right before the usage data, and a stream whose usage chunk has no
                // blank line.
                ([": ping\n", USAGE, DONE].concat(), [": ping\n", DONE].concat()),
                ([CONTENT, USAGE.trim_end()].concat(), CONTENT.to_owned()),
                (format!("data: [DONE]\n{USAGE}data: {{\"cut"), format!("data: [DONE]\n{USAGE}")),
            ] {
                assert_eq!(strip(&stream, sizes), left, "{sizes:?}");
                let (stream, left) = (stream.replace('\n', "\r\n"), left.replace('\n', "\r\n"));
                assert_eq!(strip(&stream, sizes), left, "{sizes:?}");
            }
        }
    }

    #[test]
    fn text_that_speaks_of_usage_passes() {
        let said = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\": {}\"}}]}\n\n";
        let error = "data: {\"error\":{\"message\":\"no\"},\"choices\":[],\
            \"usage\":{\"prompt_tokens\":1}}\n\n";
        let odd = "event: note\ndata: \"usage\"\n\n";
        assert_eq!(strip(&[said, error, odd].concat(), &[11]), [said, error, odd].concat());
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(
            parts in prop::collection::vec(
                prop::sample::select(&[
                    CONTENT, LAST, FILTER, USAGE, DONE, ": c\n\n", ": c\n", "\r\n\r\n", "data: x",
                ][..]),
                0..12,
            ),
            sizes in prop::collection::vec(1usize..90, 1..5),
        ) {
            let stream = parts.concat();
            prop_assert_eq!(strip(&stream, &[]), strip(&stream, &sizes));
            let without: Vec<&str> = parts.iter().copied().filter(|part| *part != USAGE).collect();
            if parts.iter().all(|part| part.ends_with("\n\n")) {
                prop_assert_eq!(strip(&stream, &sizes), without.concat());
            }
        }
    }
}
