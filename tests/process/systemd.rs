//! What systemd hears of a gateway whose unit has `Type=notify`.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::support::documents::in_order;
use crate::support::gateway::Setup;

#[tokio::test]
async fn systemd_is_told_when_it_serves_when_another_takes_over_and_when_it_drains() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let heard = || {
        let mut text = [0; 256];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    let setup = Setup::new(&in_order(&[("a", "http://127.0.0.1:9/v1")], ""))
        .env("NOTIFY_SOCKET", path.to_str().unwrap());
    let mut gateway = setup.start().await;
    assert_eq!(heard(), "READY=1");
    gateway.upgrade().await;
    // By the process before, whom systemd believes, and by the new one.
    let mut told = [heard(), heard()];
    told.sort();
    assert_eq!(told, [format!("MAINPID={}", gateway.process()), "READY=1".to_owned()]);
    gateway.predecessor_ends().await;
    gateway.stop().await;
    assert_eq!(heard(), "STOPPING=1", "only the last process says so");
}
