//! Bases of providers' APIs.

use super::*;

#[test]
fn a_base_is_read_or_refused() {
    let base = Base::parse("https://API.example.com/v1/").unwrap();
    assert_eq!((base.tls, base.host.as_str(), base.port, base.path.as_str()), (true, "api.example.com", 443, "/v1"));
    assert_eq!(base.authority(), "api.example.com");
    let base = Base::parse("http://[::1]:8000").unwrap();
    assert_eq!((base.host.as_str(), base.port, base.path.as_str(), base.authority().as_str()), ("::1", 8000, "", "[::1]:8000"));
    for bad in [
        "",
        "api.example.com",
        "ftp://x",
        "https://",
        "https://u:p@x/",
        "https://x/?a=1",
        "https://x/#a",
        "https://x:0/",
        "https://x:99999/",
        "/v1",
    ] {
        assert!(Base::parse(bad).is_err(), "{bad}");
    }
}
