//! Translates a provider's answer into the client's dialect: a stream piece by piece, a document or
//! an error once it is whole.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use memchr::memmem;

use rerouter_dialect::Dialect;
use rerouter_dialect::neutral::answer::{AnswerContext, Failure};
use rerouter_dialect::translate_answer::{
    StreamTranslator, error_body, translate_answer, translate_count, translate_error,
};
use rerouter_dialect::usage::Usage;

/// The header that lists what a translation left out: members of the request and of the answer.
pub(super) static DROPPED: HeaderName = HeaderName::from_static("x-rerouter-dropped");

#[derive(Clone, Debug)]
pub(super) struct AnswerPlan {
    pub(super) from: Dialect,
    pub(super) to: Dialect,
    /// Whether the answer is a count of tokens.
    pub(super) counts: bool,
    pub(super) context: AnswerContext,
    /// Members of the client's request that the provider's dialect lacks.
    pub(super) dropped: Vec<String>,
}

impl AnswerPlan {
    /// The header that lists what was left out; `None` if nothing was. `more` lists members of the
    /// answer.
    pub(super) fn dropped_header(&self, more: &[String]) -> Option<HeaderValue> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.dropped.iter().chain(more).map(String::as_str) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { None } else { HeaderValue::try_from(names.join(", ")).ok() }
    }
}

pub(super) enum AnswerTranslation {
    Stream {
        translator: Box<StreamTranslator>,
        plan: AnswerPlan,
        /// The stream ended with an error before the provider's bytes ended.
        failed: bool,
    },
    Whole(Box<WholeTranslation>),
}

/// The translation of a whole document: any answer but a successful stream.
pub(super) struct WholeTranslation {
    plan: AnswerPlan,
    status: u16,
    body: BytesMut,
    pub(super) usage: Option<Usage>,
    dropped: Option<HeaderValue>,
    /// The error status of an answer that holds an error, or cannot be read, although its own
    /// status is another.
    pub(super) failed_as: Option<u16>,
}

impl AnswerTranslation {
    pub(super) fn begin(plan: &AnswerPlan, status: u16, stream: bool) -> Self {
        if stream && !plan.counts && (200..300).contains(&status) {
            let translator = StreamTranslator::new(plan.from, plan.to, plan.context.clone());
            let (translator, plan) = (Box::new(translator), plan.clone());
            return AnswerTranslation::Stream { translator, plan, failed: false };
        }
        AnswerTranslation::Whole(Box::new(WholeTranslation {
            plan: plan.clone(),
            status,
            body: BytesMut::new(),
            usage: None,
            dropped: None,
            failed_as: None,
        }))
    }

    pub(super) fn feed(&mut self, piece: &[u8], end: bool) -> Bytes {
        match self {
            AnswerTranslation::Stream { translator, failed, .. } => {
                let mut out = Vec::with_capacity(piece.len());
                translator.feed(piece, &mut out);
                *failed = translator.has_failed();
                if end {
                    translator.finish(&mut out);
                }
                out.into()
            }
            AnswerTranslation::Whole(whole) => {
                whole.body.extend_from_slice(piece);
                if end { whole.translate() } else { Bytes::new() }
            }
        }
    }

    /// The header that lists what was left out, if the answer added to the list. Of a stream, once
    /// it is over.
    pub(super) fn dropped(&self) -> Option<HeaderValue> {
        match self {
            AnswerTranslation::Stream { translator, plan, .. } => {
                let more = translator.dropped();
                let is_over = translator.is_over() && !more.is_empty();
                is_over.then(|| plan.dropped_header(more)).flatten()
            }
            AnswerTranslation::Whole(whole) => whole.dropped.clone(),
        }
    }
}

impl WholeTranslation {
    fn translate(&mut self) -> Bytes {
        let body = std::mem::take(&mut self.body);
        let AnswerPlan { from, to, context, counts, .. } = &self.plan;
        if !(200..300).contains(&self.status) {
            // Google answers so to a key that is not valid.
            let is_refused_key = *from == Dialect::Gemini && self.status == 400;
            if is_refused_key && memmem::find(&body, b"\"API_KEY_INVALID\"").is_some() {
                self.failed_as = Some(401);
            }
            return translate_error(*to, self.status, &body);
        }
        if *counts {
            return translate_count(*from, &body).unwrap_or_else(|failure| self.fail(&failure));
        }
        self.usage = from.read_usage(&body);
        match translate_answer(*from, *to, &body, context) {
            Ok(answer) => {
                if !answer.dropped.is_empty() {
                    self.dropped = self.plan.dropped_header(&answer.dropped);
                }
                answer.body
            }
            Err(failure) => self.fail(&failure),
        }
    }

    fn fail(&mut self, failure: &Failure) -> Bytes {
        self.failed_as = Some(failure.status);
        error_body(self.plan.to, failure)
    }

    /// Number of the provider's bytes that are kept.
    pub(super) fn held(&self) -> usize {
        self.body.len()
    }
}
