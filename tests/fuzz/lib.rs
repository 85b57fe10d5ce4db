//! The gateway's readers of foreign bytes without the gateway, so that a fuzzer is built in a
//! minute.
#![allow(dead_code, unused_imports, reason = "the gateway uses the rest")]

#[path = "../../src/bounds.rs"]
mod bounds;
#[path = "../../src/dialect/mod.rs"]
mod dialect;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/wire/mod.rs"]
mod wire;

/// In place of the gateway's, whose ciphers no reader needs.
mod secret {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Secret(String);

    impl Secret {
        pub fn new(value: impl Into<String>) -> Self {
            Secret(value.into())
        }

        pub fn expose(&self) -> &str {
            &self.0
        }
    }
}

/// The same names as in the gateway's library, as far as `targets.rs` uses them.
pub mod internals {
    pub mod dialect {
        pub use crate::dialect::Dialect;
        pub mod agent {
            pub use crate::dialect::agent::{AgentPreset, apply};
        }
        pub mod chat {
            pub mod usage_strip {
                pub use crate::dialect::chat::usage_strip::UsageStrip;
            }
        }
        pub mod endpoint {
            pub use crate::dialect::endpoint::Endpoint;
        }
        pub mod neutral {
            pub use crate::dialect::neutral::answer::{Answer, AnswerContext};
            pub use crate::dialect::neutral::part::Part;
            pub use crate::dialect::neutral::request::Request;
        }
        pub mod request {
            pub use crate::dialect::request::{
                ModelRequest, last_user_text, read_request, rename_model, without_stream,
            };
        }
        pub mod request_translation {
            pub use crate::dialect::request_translation::{read_request, write_request};
        }
        pub mod stream {
            pub use crate::dialect::stream::{StreamTally, assemble};
        }
        pub mod translate_answer {
            pub use crate::dialect::translate_answer::{
                StreamTranslator, read_answer, translate_answer, translate_error,
            };
        }
    }
    pub mod wire {
        pub mod coding {
            pub use crate::wire::coding::{Coding, Decoder};
        }
        pub mod sse {
            pub use crate::wire::sse::{Splitter, SseEvent};
        }
    }
}
