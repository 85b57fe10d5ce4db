//! What a provider reads: head and body of a request leave together, on a new and on a reused
//! connection, in the first attempt and in the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::client::find;
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::Gateway;
use crate::support::provider::completion_body;

/// A provider that counts requests, and the reads that they took.
#[derive(Default)]
struct Counting {
    requests: AtomicUsize,
    reads: AtomicUsize,
    connections: AtomicUsize,
}

impl Counting {
    async fn start(self: &Arc<Self>, status: u16) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let counting = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counting.connections.fetch_add(1, Ordering::AcqRel);
                let counting = counting.clone();
                tokio::spawn(async move { counting.serve(stream, status).await });
            }
        });
        url
    }

    async fn serve(&self, mut stream: TcpStream, status: u16) {
        let mut came = Vec::new();
        let mut piece = vec![0; 1 << 20];
        loop {
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(read) => came.extend_from_slice(&piece[..read]),
            }
            self.reads.fetch_add(1, Ordering::AcqRel);
            if !is_whole(&came) {
                continue;
            }
            came.clear();
            self.requests.fetch_add(1, Ordering::AcqRel);
            let body = completion_body("well").to_string();
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    /// Requests, their reads, and connections.
    fn counts(&self) -> [usize; 3] {
        [&self.requests, &self.reads, &self.connections].map(|count| count.load(Ordering::Acquire))
    }
}

fn is_whole(came: &[u8]) -> bool {
    let Some(end) = find(came, b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&came[..end]).to_lowercase();
    let length = head.split("content-length: ").nth(1).expect("a length");
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    came.len() >= end + 4 + length
}

#[tokio::test]
async fn a_request_leaves_in_one_segment() {
    let (failing, serving) = (Arc::<Counting>::default(), Arc::<Counting>::default());
    let (one, other) = (failing.start(500).await, serving.start(200).await);
    let gateway = Gateway::start(&in_order(&[("a", &one), ("b", &other)], "")).await;
    let key = gateway.create_key().await;
    let mut connection = gateway.connect().await;
    for _ in 0..20 {
        let body = chat_body("auto", false);
        let answer = connection.exchange(&gateway.chat_request(&key, body.as_bytes())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(serving.counts(), [20, 20, 1]);
    // The breaker of the failing one opens after some requests.
    let [requests, reads, _] = failing.counts();
    assert!(requests > 1 && reads == requests, "{requests} requests in {reads} reads");
}
