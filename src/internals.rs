//! Re-exports for the tests and benches of this repository. They are not part of the API, and
//! change without notice.

pub use rerouter_base::{clock, id, interface, log, metrics, secret};
pub use rerouter_captures::{archive, capture};
pub use rerouter_core::{api, config};
pub use rerouter_dialect::wire;
pub use {
    rerouter_console as console, rerouter_gateway as gateway, rerouter_routing as routing,
    rerouter_store as store,
};

pub mod auth {
    pub use rerouter_access::auth::*;
    pub use rerouter_base::secret::token;
}
pub mod bounds {
    pub use rerouter_access::auth::{LOGINS, PASSWORD_QUEUE, REGISTRATIONS};
    pub use rerouter_base::bounds::{DOCUMENT_BYTES, NODE_HEARTBEAT, NODE_LEASE};
    pub use rerouter_captures::capture::bounds::{
        CAPTURE_LINGER, CAPTURE_QUEUE_BYTES, CAPTURE_SYNC,
    };
    pub use rerouter_cli::NODE_CALLBACK_TIMEOUT;
    pub use rerouter_core::api::pin::PASSWORD_MAX;
    pub use rerouter_core::app::{REROUTES_SHARE, SHADOWS};
    pub use rerouter_core::prompt::READ_INLINE;
    pub use rerouter_gateway::server::CONNECTIONS_SHARE;
    pub use rerouter_routing::KEYWORD_SETS;
    pub use rerouter_routing::RULES;
    pub use rerouter_routing::condition::{CEL_BYTES, CEL_NODES};
    pub use rerouter_store::KEYS_PER_OWNER;
}
pub mod dialect {
    pub use rerouter_dialect::*;
    pub mod neutral {
        pub use rerouter_dialect::neutral::answer::{Answer, AnswerContext};
        pub use rerouter_dialect::neutral::event::Lost;
        pub use rerouter_dialect::neutral::part::Part;
        pub use rerouter_dialect::neutral::request::Request;
    }
}
