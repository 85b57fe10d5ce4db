//! A request for a provider of another dialect than the client's.

use bytes::Bytes;
use http::Uri;
use pingora::{Error, ErrorType, Result};

use super::answer_translation::AnswerPlan;
use super::call::InferenceCall;
use super::provider_headers::{request_target, written};
use crate::dialect::Dialect;
use crate::dialect::neutral::answer::AnswerContext;
use crate::dialect::neutral::request::ChatTerms;
use crate::dialect::request_translation::{read_request, write_request};
use crate::routing::{StreamUsage, Target};

impl InferenceCall {
    /// Writes the request for a target that speaks `dialect`: its request target and body. Its
    /// answer will be translated.
    pub(super) fn translate(&self, target: &Target, dialect: Dialect) -> Result<(Uri, Bytes)> {
        let client = self.request.endpoint.dialect();
        let mut progress = self.progress();
        let request = match &mut progress.neutral {
            Some(request) => request,
            unread => {
                let read = read_request(client, &self.request.body);
                unread.insert(Box::new(read.map_err(|why| untranslatable(&why.0))?))
            }
        };
        request.model = target.model.to_string();
        request.chat = ChatTerms {
            completion_tokens: target.provider.takes_completion_tokens(),
            stream_usage: target.provider.stream_usage != StreamUsage::Never,
        };
        let streams = request.stream;
        let sent = write_request(request, dialect).map_err(|why| untranslatable(&why.member))?;
        let uri = written(translated_target(target, dialect, streams))?;
        progress.translation = Some(Box::new(AnswerPlan {
            from: dialect,
            to: client,
            context: AnswerContext {
                id: self.id.to_string(),
                model: target.model.to_string(),
                created: self.app.clock.now().as_second().unsigned_abs(),
                include_usage: self.request.includes_usage,
            },
            dropped: sent.dropped,
        }));
        Ok((uri, sent.body))
    }
}

/// The decision sees to it that a request can be translated for its targets.
fn untranslatable(member: &str) -> Box<Error> {
    let why = format!("the request cannot be translated: {member}");
    Error::explain(ErrorType::InternalError, why)
}

/// The request target for an answer by the target's model.
fn translated_target(target: &Target, dialect: Dialect, streams: bool) -> Option<Uri> {
    let provider = &target.provider;
    let Some(path) = provider.protocol.model_path(&target.model, streams) else {
        return request_target(target, dialect.endpoint()?, None);
    };
    let (path, query) =
        path.split_once('?').map_or((&*path, None), |(path, query)| (path, Some(query)));
    Uri::try_from(provider.base.target_at(path, query)).ok()
}
