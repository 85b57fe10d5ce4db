//! The names of the gateway's library that `targets.rs` uses, without the gateway.

pub mod internals {
    pub use rerouter_dialect::wire;
    pub mod dialect {
        pub use rerouter_dialect::{
            Dialect, agent, chat, endpoint, request, request_translation, stream, translate_answer,
        };
        pub mod neutral {
            pub use rerouter_dialect::neutral::answer::{Answer, AnswerContext};
            pub use rerouter_dialect::neutral::part::Part;
            pub use rerouter_dialect::neutral::request::Request;
        }
    }
}
