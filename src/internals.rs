//! What the tests and benches of this repository use of the rooms. No part of the API: it changes
//! without notice.

pub mod api {
    pub use crate::api::{Policy, ROUTES, Route};
    pub mod audit {
        pub use crate::api::audit::NOTED;
    }
    pub mod openapi {
        pub use crate::api::openapi::document;
    }
}
pub mod archive {
    pub use crate::archive::Archive;
}
pub mod auth {
    pub use crate::auth::{Auth, KeyState};
    pub mod signature {
        pub use crate::auth::signature::{Covered, Signer};
    }
    pub mod token {
        pub use crate::secret::token::{mint, redact};
    }
}
pub mod bounds {
    pub use crate::bounds::{
        CAPTURE_LINGER, CAPTURE_QUEUE_BYTES, CAPTURE_SYNC, CEL_BYTES, CEL_NODES, CONNECTIONS_SHARE,
        DOCUMENT_BYTES, KEYS_PER_OWNER, KEYWORD_SETS, LOGINS, NODE_CALLBACK_TIMEOUT,
        NODE_HEARTBEAT, NODE_LEASE, PASSWORD_MAX, PASSWORD_QUEUE, READ_INLINE, REGISTRATIONS,
        REROUTES_SHARE, RULES, SHADOWS,
    };
}
pub mod capture {
    pub mod queue {
        pub use crate::capture::queue::CaptureQueue;
    }
    pub mod record {
        pub use crate::capture::record::{Attempt, Bodies, Capture, CaptureState, Head, Served};
    }
}
pub mod clock {
    pub use crate::clock::{Clock, rfc3339};
}
pub mod config {
    pub use crate::config::{
        DocumentSource, Problem, Server, load, read_foreign, read_routing, read_server, server_keys,
    };
}
pub mod console {
    pub use crate::console::PAGES;
}
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
    pub mod feature {
        pub use crate::dialect::feature::{Fate, Feature};
    }
    pub mod neutral {
        pub use crate::dialect::neutral::answer::{
            Answer, AnswerContext, Failure, FailureKind, StopReason, TokenCounts,
        };
        pub use crate::dialect::neutral::event::{PartKind, StreamEvent};
        pub use crate::dialect::neutral::part::{
            Base64, File, Image, Part, Source, Thinking, ToolCall, ToolResult,
        };
        pub use crate::dialect::neutral::request::{
            Depth, OutputFormat, Reasoning, Request, Sampling, Speaker, Tool, ToolChoice, Turn,
            Use, UsedFeatures, WebSearch,
        };
        pub use crate::dialect::neutral::seal::Seal;
    }
    pub mod protocol {
        pub use crate::dialect::protocol::Protocol;
    }
    pub mod request {
        pub use crate::dialect::request::{
            ModelRequest, last_user_text, read_request, rename_model, without_stream,
        };
    }
    pub mod request_translation {
        pub use crate::dialect::request_translation::{
            MalformedRequest, Refused, Translated, read_request, write_request,
        };
    }
    pub mod stream {
        pub use crate::dialect::stream::{StreamTally, assemble};
    }
    pub mod translate_answer {
        pub use crate::dialect::translate_answer::{
            StreamTranslator, TranslatedAnswer, error_body, read_answer, translate_answer,
            translate_error,
        };
    }
    pub mod usage {
        pub use crate::dialect::usage::Usage;
    }
}
pub mod gateway {
    pub use crate::gateway::CallStages;
}
pub mod id {
    pub use crate::id::{KeyId, Random, RequestId, UserId};
}
pub mod interface {
    pub use crate::interface::{Interface, Surface};
}
pub mod log {
    pub use crate::log::{ACCESS_FIELDS, AccessLog, DIAGNOSTIC_FIELDS, may_be_written, panicked};
}
pub mod metrics {
    pub use crate::metrics::{MetricRow, Metrics};
}
pub mod routing {
    pub use crate::routing::{
        Candidate, Decision, Inputs, PlanEntry, PrincipalFacts, RefusedFeature, RequestFacts,
        Routing, Untranslatable, decide,
    };
    pub mod language {
        pub use crate::routing::language::detect;
    }
}
pub mod secret {
    pub use crate::secret::{Keyring, Purpose, Secret, SecretBytes};
}
pub mod store {
    pub use crate::store::{
        Actor, CaptureFilter, DataDir, Faults, KeyRow, KeyStatus, LatencyCounts, Limits, Opening,
        PanicPoint, Reach, Store, StoreError, UsageKey, UsageSums, WrappedRootKey, usage_slot,
    };
}
pub mod wire {
    pub mod coding {
        pub use crate::wire::coding::{Coding, Decoder};
    }
    pub mod sse {
        pub use crate::wire::sse::{Splitter, SseEvent};
    }
    pub mod tokens {
        pub use crate::wire::tokens::{dearest_image, estimate};
    }
}
