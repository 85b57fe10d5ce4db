//! Records: decoding returns what was encoded, and refuses anything else.

use proptest::prelude::*;

use super::*;
use rerouter_base::secret::{Keyring, SecretBytes};

fn cipher(encrypt: bool) -> Cipher {
    let keys = CaptureKeys::new(&Keyring::from(&SecretBytes::new([9; 32])));
    Cipher { keys, random: Random::System, encrypt }
}

/// Records written with this dictionary can only be read with it.
#[test]
fn the_dictionary_never_changes() {
    assert_eq!((DICTIONARY.len(), crc32fast::hash(DICTIONARY)), (12_288, 0x17b8_2f94));
}

/// A capture as in a segment: its records and their location.
struct Encoded {
    buffers: RecordBuffers,
    location: CaptureLocation,
}

impl Encoded {
    fn of(
        encoder: &mut RecordEncoder,
        cipher: &Cipher,
        head: &[u8],
        bodies: &Bodies,
        effort: Effort,
    ) -> Self {
        let id = RequestId::known("req_1");
        let mut buffers = RecordBuffers { heads: vec![1; 3], bodies: vec![2; 5] };
        let location =
            encoder.encode(&id, head, bodies, cipher, effort.into(), &mut buffers).unwrap();
        Encoded { buffers, location }
    }

    fn head(&self) -> Vec<u8> {
        self.buffers.heads[self.location.head.offset as usize..].to_vec()
    }

    fn bodies(&self) -> Option<Vec<u8>> {
        let range = self.location.bodies?;
        Some(self.buffers.bodies[range.offset as usize..].to_vec())
    }
}

#[test]
fn a_salt_that_is_drawn_twice_gives_two_keys_and_records_of_earlier_builds_are_read() {
    let (keys, salt, id) = (cipher(true).keys, [7; SALT], RequestId::known("req_1"));
    let sealed = |mixed: &str| {
        let mut record = [&5_u32.to_be_bytes()[..], b"plain"].concat();
        keys.derive(&salt, mixed).unwrap().seal(0, id.as_str().as_bytes(), &mut record, 0).unwrap();
        record
    };
    let (present, earlier) = (sealed(id.as_str()), sealed(""));
    assert!(present != sealed("req_2") && present != earlier);
    let mut decoder = RecordDecoder::new().unwrap();
    let mut open = |record| decoder.decode(&id, RecordPart::Head, record, Some(&salt), &keys);
    assert_eq!(open(present), Ok(b"plain".to_vec()));
    assert_eq!(open(earlier), Ok(b"plain".to_vec()));
    assert_eq!(open(sealed("req_2")), Err("it does not decrypt"));
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        head in prop::collection::vec(any::<u8>(), 0..3_000), repeats in 0_usize..200,
        request in "\\PC{0,400}", response in prop::collection::vec(any::<u8>(), 0..3_000),
        encrypt in any::<bool>(), effort in 0..3,
    ) {
        let effort = [Effort::Usual, Effort::Less, Effort::None][effort as usize];
        let sent = Bodies { request: request.repeat(repeats).into(), response: response.into() };
        let (cipher, mut encoder) = (cipher(encrypt), RecordEncoder::new().unwrap());
        let mut decoder = RecordDecoder::new().unwrap();
        for _ in 0..2 {
            let encoded = Encoded::of(&mut encoder, &cipher, &head, &sent, effort);
            let location = encoded.location.clone();
            let mut decode = |part, record: Vec<u8>| {
                let id = RequestId::known("req_1");
                decoder.decode(&id, part, record, location.salt.as_ref(), &cipher.keys)
            };
            let whole = encoded.head();
            prop_assert_eq!(whole.len(), location.head.length as usize);
            let plain = decode(RecordPart::Head, whole.clone()).unwrap();
            let (found, small) = head_and_bodies(plain).unwrap();
            prop_assert_eq!(&found, &head);
            let found = match encoded.bodies() {
                Some(record) => bodies(decode(RecordPart::Bodies, record).unwrap()).unwrap(),
                None => small,
            };
            prop_assert_eq!(&found, &sent);
            for at in [0, whole.len() / 2, whole.len() - 1] {
                let mut bent = whole.clone();
                bent[at] ^= 1;
                prop_assert!(decode(RecordPart::Head, bent).is_err());
                prop_assert!(decode(RecordPart::Head, whole[..at].to_vec()).is_err());
            }
            if encrypt {
                prop_assert!(decode(RecordPart::Bodies, whole).is_err());
            }
        }
    }

    #[test]
    fn what_is_no_record_of_a_head_is_told(plain in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Some((head, bodies)) = head_and_bodies(plain.clone()) {
            prop_assert_eq!(&plain[PREFIX..], [&*head, &bodies.request, &bodies.response].concat());
        }
    }
}

#[test]
fn a_small_capture_is_one_record_and_a_large_one_two() {
    let (cipher, mut encoder) = (cipher(true), RecordEncoder::new().unwrap());
    for (bytes, apart) in [(0, false), (SMALL - PREFIX - 100, false), (SMALL - PREFIX - 99, true)] {
        let sent = Bodies { request: vec![7; bytes].into(), response: Bytes::new() };
        let encoded = Encoded::of(&mut encoder, &cipher, &[1; 100], &sent, Effort::Usual);
        assert_eq!(encoded.location.bodies.is_some(), apart, "{bytes}");
    }
}

#[test]
fn no_two_captures_have_one_key() {
    let (id, cipher) = (RequestId::known("req_1"), cipher(true));
    let mut encoder = RecordEncoder::new().unwrap();
    let mut encode =
        || Encoded::of(&mut encoder, &cipher, b"{}", &Bodies::default(), Effort::Usual);
    let all: Vec<Encoded> = (0..2 * SALTS + 1).map(|_| encode()).collect();
    let mut salts: Vec<_> = all.iter().map(|encoded| encoded.location.salt.unwrap()).collect();
    salts.sort_unstable();
    salts.dedup();
    assert_eq!(salts.len(), all.len());
    assert!(encoder.salts.iter().all(|left| salts.binary_search(left).is_err()));
    let (first, second) = (&all[0], &all[1]);
    assert!(first.head() != second.head());
    let mut decoder = RecordDecoder::new().unwrap();
    let salt = second.location.salt;
    let other = decoder.decode(&id, RecordPart::Head, first.head(), salt.as_ref(), &cipher.keys);
    assert!(other.is_err());
}
