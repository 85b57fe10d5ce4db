use base64::Engine;
use proptest::prelude::*;

use super::*;

fn written(file: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(file)
}

fn png(width: u32, height: u32) -> Vec<u8> {
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR",
        &width.to_be_bytes()[..],
        &height.to_be_bytes(),
        b"\x08\x02\0\0\0",
    ]
    .concat()
}

#[test]
fn the_head_of_a_file_tells_its_size() {
    let gif =
        [b"GIF89a".as_slice(), &640u16.to_le_bytes(), &480u16.to_le_bytes(), b"\0\0\0"].concat();
    let exif = [b"\xff\xe1".as_slice(), &1002u16.to_be_bytes(), &[7; 1000]].concat();
    let frame =
        [b"\xff\xc2\0\x11\x08".as_slice(), &480u16.to_be_bytes(), &640u16.to_be_bytes(), b"\x03"]
            .concat();
    let jpeg = [b"\xff\xd8".as_slice(), &exif, b"\xff", &frame].concat();
    let riff = |rest: &[u8]| [b"RIFF\0\0\0\0WEBP".as_slice(), rest].concat();
    let extended = riff(b"VP8X\x0a\0\0\0\0\0\0\0\x7f\x02\0\xdf\x01\0");
    let lossless =
        riff(&[b"VP8L\0\0\0\0\x2f".as_slice(), &(639u32 | 479 << 14).to_le_bytes()].concat());
    let lossy = riff(b"VP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x80\x02\xe0\x01");
    for file in [png(640, 480), gif, jpeg, extended, lossless, lossy] {
        assert_eq!(look(written(&file).as_bytes()), Some(Some((640, 480))), "{file:?}");
        let longer = [&file[..], &[9; 50]].concat();
        assert_eq!(
            look(written(&longer).replace('+', "-").replace('/', "_").as_bytes()),
            Some(Some((640, 480)))
        );
        // A file that is cut before its size is still an image. A GIF has its size in the first
        // bytes.
        assert_eq!(
            look(&written(&file).as_bytes()[..16])
                .map(|size| size.is_none() || file.starts_with(b"GIF")),
            Some(true)
        );
        assert!(look(written(&file).replace('/', "\\/").as_bytes()).is_some());
    }
    assert_eq!(look(written(&png(0, 5)).as_bytes()), Some(None));
    for none in
        ["", "AAAA", "https://example.com/a.png", "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmciLz4="]
    {
        assert_eq!(look(none.as_bytes()), None, "{none}");
    }
}

#[test]
fn images_count_by_the_rule_of_their_provider() {
    // Examples from OpenAI's and Anthropic's documentation.
    assert_eq!(
        [tiles((1024, 1024)), tiles((2048, 4096)), tiles((200, 200)), tiles((1, 1))],
        [765, 1105, 255, 255]
    );
    assert_eq!(
        [
            pixels((200, 200)),
            pixels((1000, 1000)),
            pixels((1092, 1092)),
            pixels((8000, 8000)),
            pixels((1, 1))
        ],
        [54, 1334, 1590, 1600, 1]
    );
    let mut prompt = PromptSize::default();
    let address = format!("data:image/png;base64,{}", written(&png(200, 200)));
    prompt.image(address.as_bytes(), ImageRule::OpenAi { small: false });
    assert_eq!((prompt.images, prompt.tokens, prompt.apart), (1, 255, address.len() as u64 - 22));
    prompt.image(b"https://example.com/a.png", ImageRule::OpenAi { small: false });
    prompt.image(written(&png(200, 200)).as_bytes(), ImageRule::Anthropic);
    prompt.image(address.as_bytes(), ImageRule::OpenAi { small: true });
    assert_eq!((prompt.images, prompt.tokens), (4, 255 + 765 + 54 + 85));
    // Data that is no image counts as text.
    let apart = prompt.apart;
    prompt.image(b"data:image/png;base64,bm8gaW1hZ2UgYXQgYWxs", ImageRule::OpenAi { small: false });
    assert_eq!(prompt.apart, apart);
}

#[test]
fn audio_and_files_count_by_their_length() {
    let tokens = |add: &dyn Fn(&mut PromptSize)| {
        let mut prompt = PromptSize::default();
        add(&mut prompt);
        (prompt.tokens, prompt.apart, prompt.is_open)
    };
    assert_eq!(tokens(&|prompt| prompt.audio(b"AAAA")), (100, 4, false));
    assert_eq!(tokens(&|prompt| prompt.audio(&[b'A'; 1_000_000])), (500, 1_000_000, false));
    assert_eq!(tokens(&|prompt| prompt.file(b"data:application/pdf;base64,AAAA")), (250, 32, true));
    assert_eq!(
        tokens(&|prompt| prompt.file(&[b'A'; 266_668])),
        (5_000, 266_668, true),
        "a PDF of 200 KB"
    );
    let text = format!("data:text/plain;base64,{}", "A".repeat(3_432));
    assert_eq!(tokens(&|prompt| prompt.file(text.as_bytes())), (647, 0, true));
}

proptest! {
    #[test]
    fn base64_is_read_in_any_place(
        file in prop::collection::vec(any::<u8>(), 0..40),
        at in 0usize..40,
    ) {
        let expected = file.get(at..at + 5).map(|five| <[u8; 5]>::try_from(five).unwrap());
        let found = bytes::<5>(written(&file).trim_end_matches('=').as_bytes(), at);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_characters_panic(
        data in prop::collection::vec(any::<u8>(), 0..60),
        begins in prop::sample::select(
            &["", "/9j/", "iVBORw0KGgo", "UklGRAAAAABXRUJQ", "R0lGODlh"][..],
        ),
    ) {
        look(&[begins.as_bytes(), &data].concat());
    }
}
