//! URLs of object stores, and a store in a folder.

use super::*;
use super::{OBJECT_ERROR, OBJECT_PART};

#[test]
fn urls_name_a_store_and_nothing_else() {
    for good in ["file:///srv/captures", "s3://bucket", "s3://bucket/a/b", "gs://b/c", "az://b"] {
        assert!(ObjectLocation::parse(good).is_ok(), "{good}");
    }
    for (bad, why) in [
        ("bucket", "must be a URL"),
        ("https://host/bucket", "must begin with"),
        ("file:relative", "must be a URL"),
        ("file:///etc/../etc", "no dotted parts"),
        ("file:///etc/%2E%2e/etc", "no dotted parts"),
        ("s3://../../x", "no dotted parts"),
        ("s3://b/../../c", "no dotted parts"),
        ("gs://b/./c", "no dotted parts"),
        ("file://captures", "absolute"),
        ("s3:///folder", "must name a bucket"),
        ("s3://key:secret-canary@bucket", "a bucket and a folder only"),
        ("s3://bucket?secret=canary", "a bucket and a folder only"),
    ] {
        let told = ObjectLocation::parse(bad).unwrap_err();
        assert!(told.contains(why) && !told.contains("canary"), "{bad}: {told}");
    }
}

#[test]
fn what_is_missing_or_refused_is_told_without_the_text_of_the_server() {
    let none = ObjectLocation::parse("az://b/c").unwrap().open(&|_| None);
    assert_eq!(none.err().unwrap(), "AZURE_STORAGE_ACCOUNT_NAME is not set");
    let refused = |said: &str| {
        let source = format!("403 Forbidden: {said}").into();
        told(&object_store::Error::Generic { store: "Azure", source }).to_string()
    };
    let xml = "\u{feff}<?xml version=\"1.0\"?>\n<Error><Code>AuthenticationFailed</Code><Message>a";
    let told = "Generic Azure error: 403 Forbidden: AuthenticationFailed";
    assert_eq!(refused(&format!("{xml}{}", "b".repeat(1_000))), told);
    assert_eq!(refused("<?xml>"), "Generic Azure error: 403 Forbidden:");
    assert_eq!(refused(&"é".repeat(1_000)).chars().count(), OBJECT_ERROR);
}

#[tokio::test]
async fn a_folder_is_of_the_store_that_claims_it_first() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().display());
    let objects = ObjectLocation::parse(&url).unwrap().open(&|_| None).unwrap();
    for (mark, taken) in [("a", true), ("a", true), ("b", false), ("ab", false), ("a", true)] {
        assert_eq!(objects.claim(mark.to_owned()).await.is_ok(), taken, "{mark}");
    }
    std::fs::remove_file(dir.path().join(OWNER)).unwrap();
    objects.claim("b".to_owned()).await.unwrap();
}

#[tokio::test]
async fn segments_in_a_folder_are_whole_and_leave() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}", dir.path().join("objects").display());
    let objects = ObjectLocation::parse(&url).unwrap().open(&|_| None).unwrap();
    let (file, copy) = (dir.path().join("segment"), dir.path().join("copy"));
    // One full part, and a smaller one.
    let bytes: Vec<u8> = (0..OBJECT_PART + 1_000).map(|at| (at % 251) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    assert_eq!(objects.upload(7, file.clone()).await.unwrap(), bytes.len() as u64);
    let other = objects.clone();
    let (to, length) = (copy.clone(), bytes.len() as u64);
    let read = move || {
        other.probe("probe").unwrap();
        other.fetch(7, length, &to).unwrap();
        let absent = other.read(8, ByteRange { offset: 0, length: 1 }).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        other.read(7, ByteRange { offset: OBJECT_PART as u64 - 1, length: 3 }).unwrap()
    };
    let range = blocking(read).await.unwrap();
    assert_eq!(range, bytes[OBJECT_PART - 1..][..3]);
    assert!(std::fs::read(&copy).unwrap() == bytes);
    let listed = std::fs::read_dir(dir.path().join("objects")).unwrap().count();
    assert_eq!(listed, 1, "the probe is gone");
    objects.delete(7).await.unwrap();
    objects.delete(7).await.unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("objects")).unwrap().count(), 0);
}
