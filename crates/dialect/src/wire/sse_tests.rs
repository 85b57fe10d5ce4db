use proptest::prelude::*;

use super::*;

fn split(stream: &[u8], sizes: &[usize], limit: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut splitter = Splitter::with_limit(limit);
    let (mut whole, mut all) = (Vec::new(), Vec::new());
    let mut take = |event: SseEvent<'_>| {
        all.extend_from_slice(event.bytes());
        if let SseEvent::Whole(bytes) = event {
            whole.push(bytes.to_vec());
        }
    };
    let (mut rest, mut sizes) = (stream, sizes.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) =
            rest.split_at(sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len()));
        splitter.feed(chunk, &mut take);
        assert!(splitter.held.len() <= limit);
        rest = after;
    }
    splitter.finish(&mut take);
    (whole, all)
}

#[test]
fn every_line_ending_ends_an_event() {
    for (stream, expected) in [
        (&b"data: a\n\ndata: b\n\n"[..], &[&b"data: a\n\n"[..], b"data: b\n\n"][..]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", &[b"data: a\r\n\r\n", b"data: b\r\n\r\n"]),
        (b"data: a\r\rdata: b\r\r", &[b"data: a\r\r", b"data: b\r\r"]),
        (b": hi\n\nid: 1\ndata: b\n\ndata: cut", &[b": hi\n\n", b"id: 1\ndata: b\n\n"]),
    ] {
        let (whole, all) = split(stream, &[], 1024);
        assert_eq!(whole, expected);
        assert_eq!(all, stream);
    }
}

#[test]
fn an_event_over_the_limit_passes_in_pieces() {
    let stream = [b"data: ".as_slice(), &[b'x'; 500], b"\n\ndata: b\n\n"].concat();
    for sizes in [&[][..], &[1], &[7, 90]] {
        let (whole, all) = split(&stream, sizes, 100);
        assert_eq!(whole, [b"data: b\n\n"]);
        assert_eq!(all, stream);
    }
}

#[test]
fn fields_are_read_as_the_standard_says() {
    let read =
        fields(b"\xef\xbb\xbfevent: error\r\n: note\r\ndata: one\r\ndata:two\r\ndata\r\n\r\n");
    assert_eq!(read.name, Some(&b"error"[..]));
    assert_eq!(read.data.as_deref(), Some(&b"one\ntwo\n"[..]));
    assert_eq!(fields(b": only a comment\n\n"), SseFields::default());
}

#[test]
fn lines_of_one_event_are_joined_in_one_buffer() {
    for count in [2, 3, 1000] {
        let event = [vec!["data:xxxx"; count].join("\n").as_bytes(), b"\n\n"].concat();
        let Some(Cow::Owned(joined)) = fields(&event).data else {
            panic!("several lines are one text")
        };
        assert_eq!(joined, vec!["xxxx"; count].join("\n").as_bytes());
        assert_eq!(
            joined.capacity(),
            event.len(),
            "reserved once: none of {count} lines was moved for another"
        );
    }
}

proptest! {
    #[test]
    fn lines_are_joined_whatever_stands_between(
        lines in prop::collection::vec(
            prop::sample::select(&["data: x", "data:", "data", ":c", "event: e", "data:  y"][..]),
            0..12,
        ),
    ) {
        let event = lines.join("\r\n");
        let data: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("data")).map(|rest| {
            let rest = rest.strip_prefix(':').unwrap_or(rest);
            rest.strip_prefix(' ').unwrap_or(rest)
        }).collect();
        let expected = (!data.is_empty()).then(|| data.join("\n").into_bytes());
        prop_assert_eq!(fields(event.as_bytes()).data.map(Cow::into_owned), expected);
    }

    #[test]
    fn chunking_changes_nothing(
        parts in prop::collection::vec(
            prop::sample::select(&["data: x", ":c", "\n", "\n", "\r", "\r\n", "\r\n\r\n", "é"][..]),
            0..40,
        ),
        sizes in prop::collection::vec(1usize..9, 1..5),
        limit in 8usize..40,
    ) {
        let stream = parts.concat().into_bytes();
        let (whole, all) = split(&stream, &[], limit);
        let (again, all_again) = split(&stream, &sizes, limit);
        prop_assert_eq!(whole, again);
        prop_assert_eq!(&all, &stream);
        prop_assert_eq!(all_again, stream);
    }
}
