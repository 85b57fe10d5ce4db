//! Records: what is encoded is decoded, and nothing else is.

use proptest::prelude::*;

use super::*;
use crate::secret::{Keyring, SecretBytes};

fn cipher(encrypt: bool) -> Cipher {
    let keys = CaptureKeys::new(&Keyring::from(&SecretBytes::new([9; 32])));
    Cipher { keys, random: Random::System, encrypt }
}

/// Records under it can be read with it only.
#[test]
fn the_dictionaries_never_change() {
    let of = [HEADS, BODIES].map(|dictionary| (dictionary.len(), crc32fast::hash(dictionary)));
    assert_eq!(of, [(4096, 0x91f33a61), (8192, 0xe1e775f4)]);
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        head in prop::collection::vec(any::<u8>(), 0..3_000), repeats in 1_usize..200, request in "\\PC{0,400}",
        response in prop::collection::vec(any::<u8>(), 0..3_000), encrypt in any::<bool>(), effort in 0..3,
    ) {
        let id = RequestId::known("req_1");
        let effort = [Effort::Usual, Effort::Less, Effort::None][effort as usize];
        let sent = Bodies { request: request.repeat(repeats).into(), response: response.into() };
        let (cipher, mut encoder) = (cipher(encrypt), RecordEncoder::new().unwrap());
        let mut decoder = RecordDecoder::new().unwrap();
        for _ in 0..2 {
            let records = encoder.encode(&id, &head, &sent, &cipher, effort.into()).unwrap();
            let mut decode = |part, record: Vec<u8>| decoder.decode(&id, part, record, records.salt.as_ref(), &cipher.keys);
            prop_assert_eq!(decode(RecordPart::Head, records.head.clone()).unwrap(), head.clone());
            prop_assert_eq!(records.bodies.is_none(), sent == Bodies::default());
            if let Some(record) = records.bodies {
                prop_assert_eq!(bodies(decode(RecordPart::Bodies, record).unwrap()).unwrap(), sent.clone());
            }
            for at in [0, records.head.len() / 2, records.head.len() - 1] {
                let mut bent = records.head.clone();
                bent[at] ^= 1;
                prop_assert!(decode(RecordPart::Head, bent).is_err());
                prop_assert!(decode(RecordPart::Head, records.head[..at].to_vec()).is_err());
            }
            if encrypt {
                prop_assert!(decode(RecordPart::Bodies, records.head).is_err());
            }
        }
    }
}

#[test]
fn no_two_captures_have_one_key() {
    let (id, cipher) = (RequestId::known("req_1"), cipher(true));
    let mut encoder = RecordEncoder::new().unwrap();
    let mut encode =
        || encoder.encode(&id, b"{}", &Bodies::default(), &cipher, Effort::Usual.into()).unwrap();
    let (first, second) = (encode(), encode());
    assert!(first.salt != second.salt && first.head != second.head);
    let mut decoder = RecordDecoder::new().unwrap();
    let other =
        decoder.decode(&id, RecordPart::Head, first.head, second.salt.as_ref(), &cipher.keys);
    assert!(other.is_err());
}
