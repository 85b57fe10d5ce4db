//! Errors of the API. An error has a kind, with its status and its word in each envelope, a public
//! detail for the client, and a private cause for the log. Only `gateway/reply.rs` renders errors.

use std::fmt;
use std::time::Duration;

use http::StatusCode;

#[derive(Debug)]
pub struct Error {
    kind: Kind,
    detail: String,
    field: Option<String>,
    retry_after: Option<Duration>,
    accepted: Option<Accepted>,
    cause: Option<String>,
    no_retry: bool,
    panicked: bool,
    /// Set if it is not the usual one of the kind.
    refusal: Option<RefusalReason>,
}

/// Methods or codings that the client may use instead.
#[derive(Debug)]
enum Accepted {
    Methods(String),
    Codings(&'static str),
}

/// The result of an endpoint, or of a step of the request path.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of errors; each has a row in [`Kind::row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    InvalidRequest,
    ContextLengthExceeded,
    UnsupportedFeature,
    Unauthorized,
    Forbidden,
    InsufficientScope,
    CsrfRejected,
    RegistrationClosed,
    NotFound,
    ModelNotFound,
    MethodNotAllowed,
    Timeout,
    Conflict,
    KeyLimitReached,
    KeyRevoked,
    NotCaptured,
    Truncated,
    Redacted,
    AgentGone,
    GateRefused,
    NoCaptures,
    ReadOnly,
    PreconditionFailed,
    PayloadTooLarge,
    UnsupportedMediaType,
    MisdirectedRequest,
    RateLimited,
    InsufficientQuota,
    HeadersTooLarge,
    Internal,
    ProviderFailed,
    Unavailable,
    NoTarget,
}

crate::words! {
    /// Why the gateway refused a request.
    pub enum RefusalReason {
        /// A limit of the key or the user.
        Limit = "limit",
        /// No target could take it: all of its rule were ineligible.
        Target = "target",
        /// The routing document does not know the model.
        Model = "model",
        /// What it asks for, or how it is written.
        Request = "request",
    }
}

/// What clients see of a kind: its status, the word of PIN and ROUTER management, and OpenAI's type
/// and code.
pub struct KindRow {
    pub status: u16,
    /// `error` of the `{"error","detail"}` envelope.
    pub word: &'static str,
    /// `error.type` of OpenAI's envelope.
    pub openai_type: &'static str,
    /// `error.code` of OpenAI's envelope.
    pub openai_code: Option<&'static str>,
}

impl Kind {
    #[rustfmt::skip]
    pub fn row(self) -> KindRow {
        const IRE: &str = "invalid_request_error";
        const PERMISSION: &str = "permission_error";
        const RATE: &str = "rate_limit_error";
        const SERVER: &str = "server_error";
        // Kinds whose OpenAI code equals their word.
        let same = |status, word, openai_type| (status, word, openai_type, Some(word));
        let (status, word, openai_type, openai_code) = match self {
            Kind::InvalidRequest =>        (400, "invalid_request", IRE, None),
            Kind::ContextLengthExceeded => same(400, "context_length_exceeded", IRE),
            Kind::UnsupportedFeature =>    same(400, "unsupported_feature", IRE),
            Kind::Unauthorized =>          (401, "unauthorized", IRE, Some("invalid_api_key")),
            Kind::Forbidden =>             same(403, "forbidden", PERMISSION),
            Kind::InsufficientScope =>     same(403, "insufficient_scope", PERMISSION),
            Kind::CsrfRejected =>          same(403, "csrf_rejected", PERMISSION),
            Kind::RegistrationClosed =>    same(403, "registration_closed", PERMISSION),
            Kind::NotFound =>              (404, "not_found", IRE, None),
            Kind::ModelNotFound =>         (404, "not_found", IRE, Some("model_not_found")),
            Kind::MethodNotAllowed =>      same(405, "method_not_allowed", IRE),
            Kind::Timeout =>               same(408, "timeout", IRE),
            Kind::Conflict =>              same(409, "conflict", IRE),
            Kind::KeyLimitReached =>       same(409, "key_limit_reached", IRE),
            Kind::KeyRevoked =>            same(409, "key_revoked", IRE),
            Kind::NotCaptured =>           same(409, "not_captured", IRE),
            Kind::Truncated =>             same(409, "truncated", IRE),
            Kind::Redacted =>              same(409, "redacted", IRE),
            Kind::AgentGone =>             same(409, "agent_gone", IRE),
            Kind::GateRefused =>           same(409, "gate_refused", IRE),
            Kind::NoCaptures =>            same(409, "no_captures", IRE),
            Kind::ReadOnly =>              same(409, "read_only", IRE),
            Kind::PreconditionFailed =>    same(412, "precondition_failed", IRE),
            Kind::PayloadTooLarge =>       same(413, "payload_too_large", IRE),
            Kind::UnsupportedMediaType =>  same(415, "unsupported_media_type", IRE),
            Kind::MisdirectedRequest =>    same(421, "misdirected_request", IRE),
            Kind::RateLimited =>           (429, "rate_limited", RATE, Some("rate_limit_exceeded")),
            Kind::InsufficientQuota =>     (429, "rate_limited", RATE, Some("insufficient_quota")),
            Kind::HeadersTooLarge =>       same(431, "headers_too_large", IRE),
            Kind::Internal =>              same(500, "internal", SERVER),
            Kind::ProviderFailed =>        (502, "provider_failed", SERVER, Some("provider_error")),
            Kind::Unavailable =>           (503, "unavailable", SERVER, Some("overloaded")),
            Kind::NoTarget =>              same(503, "no_target", SERVER),
        };
        KindRow { status, word, openai_type, openai_code }
    }
}

impl Error {
    /// An error whose `detail` the client reads; it must contain no secret.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Error {
            kind,
            detail: detail.into(),
            field: None,
            retry_after: None,
            accepted: None,
            cause: None,
            no_retry: false,
            panicked: false,
            refusal: None,
        }
    }

    /// 400 for one field of the request.
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Error { field: Some(field.into()), ..Error::new(Kind::InvalidRequest, detail) }
    }

    /// 403 for a caller who may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Error::new(Kind::Forbidden, detail)
    }

    /// 409 because of the present state of an object.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Error::new(Kind::Conflict, detail)
    }

    /// 404 for an object that does not exist or belongs to another caller. Both look alike.
    pub fn not_found(what: &str) -> Self {
        Error::new(Kind::NotFound, format!("No such {what}."))
    }

    /// 500; the cause goes to the log only.
    pub fn internal(cause: impl fmt::Display) -> Self {
        Error::new(Kind::Internal, "The gateway failed to answer this request.").because(cause)
    }

    /// 500 because of a panic. `cause` must not contain the panic's message.
    pub fn panicked(cause: impl fmt::Display) -> Self {
        Error { panicked: true, ..Error::internal(cause) }
    }

    /// 503 because the store failed to write or read.
    pub fn store_unavailable(cause: impl fmt::Display) -> Self {
        Error::new(Kind::Unavailable, "The store is unavailable; try again.")
            .because(cause)
            .retry_after(Duration::from_secs(1))
    }

    /// Sets the field at fault (`field` in the gateway's envelope, `param` in OpenAI's).
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Marks an error that a retry will not solve soon (`x-should-retry: false`).
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        self.no_retry = true;
        self
    }

    /// Sets why a request is refused, if that is not the usual reason of the kind.
    #[must_use]
    pub fn refusing(mut self, reason: RefusalReason) -> Self {
        self.refusal = Some(reason);
        self
    }

    /// Sets the `Allow` list of a 405.
    #[must_use]
    pub fn allowing(mut self, methods: impl Into<String>) -> Self {
        self.accepted = Some(Accepted::Methods(methods.into()));
        self
    }

    /// Sets the `Accept-Encoding` of a 415 (RFC 9110 section 15.5.16).
    #[must_use]
    pub fn accepting(mut self, codings: &'static str) -> Self {
        self.accepted = Some(Accepted::Codings(codings));
        self
    }

    /// Sets the cause, for the log only.
    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.kind.row().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// `Retry-After` in whole seconds, rounded up (RFC 9110 section 10.2.3).
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
    }

    pub fn forbids_retry(&self) -> bool {
        self.no_retry
    }

    /// Why the request is refused; `None` if the gateway itself failed.
    pub fn refusal(&self) -> Option<RefusalReason> {
        let usual = || match self.kind {
            Kind::RateLimited | Kind::InsufficientQuota => Some(RefusalReason::Limit),
            Kind::NoTarget => Some(RefusalReason::Target),
            Kind::ModelNotFound => Some(RefusalReason::Model),
            _ if self.status().is_server_error() => None,
            _ => Some(RefusalReason::Request),
        };
        self.refusal.or_else(usual)
    }

    pub fn is_panic(&self) -> bool {
        self.panicked
    }

    pub fn allow(&self) -> Option<&str> {
        match &self.accepted {
            Some(Accepted::Methods(methods)) => Some(methods),
            _ => None,
        }
    }

    pub fn codings(&self) -> Option<&'static str> {
        match self.accepted {
            Some(Accepted::Codings(codings)) => Some(codings),
            _ => None,
        }
    }

    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.row().word, self.detail)?;
        match &self.cause {
            Some(cause) => write!(f, " ({cause})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
