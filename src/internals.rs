//! What the tests and benches of this repository use of the rooms. No part of the API: it changes
//! without notice.

pub mod api {
    pub use rerouter_core::api::{Policy, ROUTES, Route};
    pub mod audit {
        pub use rerouter_core::api::audit::NOTED;
    }
    pub mod openapi {
        pub use rerouter_core::api::openapi_document as document;
    }
}
pub mod archive {
    pub use rerouter_captures::archive::Archive;
}
pub mod auth {
    pub use rerouter_access::auth::{Auth, KeyState};
    pub mod signature {
        pub use rerouter_access::auth::signature::{Covered, Signer};
    }
    pub mod token {
        pub use rerouter_base::secret::token::{mint, redact};
    }
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
    pub use rerouter_core::config::RULES;
    pub use rerouter_core::prompt::READ_INLINE;
    pub use rerouter_gateway::server::CONNECTIONS_SHARE;
    pub use rerouter_routing::KEYWORD_SETS;
    pub use rerouter_routing::condition::{CEL_BYTES, CEL_NODES};
    pub use rerouter_store::KEYS_PER_OWNER;
}
pub mod capture {
    pub mod queue {
        pub use rerouter_captures::capture::queue::CaptureQueue;
    }
    pub mod record {
        pub use rerouter_captures::capture::record::{
            Attempt, Bodies, Capture, CaptureState, Head, Served,
        };
    }
}
pub mod clock {
    pub use rerouter_base::clock::{Clock, rfc3339};
}
pub mod config {
    pub use rerouter_core::config::{
        DocumentSource, Problem, Server, load, read_foreign, read_routing, read_server, server_keys,
    };
}
pub mod console {
    pub use rerouter_console::PAGES;
}
pub mod dialect {
    pub use rerouter_dialect::Dialect;
    pub mod agent {
        pub use rerouter_dialect::agent::{AgentPreset, apply};
    }
    pub mod chat {
        pub mod usage_strip {
            pub use rerouter_dialect::chat::usage_strip::UsageStrip;
        }
    }
    pub mod endpoint {
        pub use rerouter_dialect::endpoint::Endpoint;
    }
    pub mod feature {
        pub use rerouter_dialect::feature::{Fate, Feature};
    }
    pub mod neutral {
        pub use rerouter_dialect::neutral::answer::{
            Answer, AnswerContext, Failure, FailureKind, StopReason, TokenCounts,
        };
        pub use rerouter_dialect::neutral::event::{PartKind, StreamEvent};
        pub use rerouter_dialect::neutral::part::{
            Base64, File, Image, Part, Source, Thinking, ToolCall, ToolResult,
        };
        pub use rerouter_dialect::neutral::request::{
            Depth, OutputFormat, Reasoning, Request, Sampling, Speaker, Tool, ToolChoice, Turn,
            Use, UsedFeatures, WebSearch,
        };
        pub use rerouter_dialect::neutral::seal::Seal;
    }
    pub mod protocol {
        pub use rerouter_dialect::protocol::Protocol;
    }
    pub mod request {
        pub use rerouter_dialect::request::{
            ModelRequest, last_user_text, read_request, rename_model, without_stream,
        };
    }
    pub mod request_translation {
        pub use rerouter_dialect::request_translation::{
            MalformedRequest, Refused, Translated, read_request, write_request,
        };
    }
    pub mod stream {
        pub use rerouter_dialect::stream::{StreamTally, assemble};
    }
    pub mod translate_answer {
        pub use rerouter_dialect::translate_answer::{
            StreamTranslator, TranslatedAnswer, error_body, read_answer, translate_answer,
            translate_error,
        };
    }
    pub mod usage {
        pub use rerouter_dialect::usage::Usage;
    }
}
pub mod gateway {
    pub use rerouter_gateway::CallStages;
}
pub mod id {
    pub use rerouter_base::id::{KeyId, Random, RequestId, UserId};
}
pub mod interface {
    pub use rerouter_base::interface::{Interface, Surface};
}
pub mod log {
    pub use rerouter_base::log::{
        ACCESS_FIELDS, AccessLog, DIAGNOSTIC_FIELDS, may_be_written, panicked, target,
    };
}
pub mod metrics {
    pub use rerouter_base::metrics::{MetricRow, Metrics};
}
pub mod routing {
    pub use rerouter_routing::{
        Candidate, Decision, Inputs, PlanEntry, PrincipalFacts, RefusedFeature, RequestFacts,
        Routing, Untranslatable, decide,
    };
    pub mod language {
        pub use rerouter_routing::language::detect;
    }
}
pub mod secret {
    pub use rerouter_base::secret::{Keyring, Purpose, Secret, SecretBytes};
}
pub mod store {
    pub use rerouter_store::{
        Actor, CaptureFilter, DataDir, Faults, KeyRow, KeyStatus, LatencyCounts, Limits, Opening,
        PanicPoint, Reach, Store, StoreError, UsageKey, UsageSums, WrappedRootKey, usage_slot,
    };
}
pub mod wire {
    pub mod coding {
        pub use rerouter_dialect::wire::coding::{Coding, Decoder};
    }
    pub mod sse {
        pub use rerouter_dialect::wire::sse::{Splitter, SseEvent};
    }
    pub mod tokens {
        pub use rerouter_dialect::wire::tokens::{dearest_image, estimate};
    }
}
