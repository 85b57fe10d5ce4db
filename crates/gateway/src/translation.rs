//! Writes requests for providers of another dialect than the client's, and answers token counts for
//! providers that cannot count.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use pingora::{Error, ErrorType, Result};

use super::answer_translation::AnswerPlan;
use super::call::InferenceCall;
use super::plan::TranslatedRequest;
use super::provider_headers::{endpoint_request_target, written};
use rerouter_dialect::Dialect;
use rerouter_dialect::neutral::answer::AnswerContext;
use rerouter_dialect::neutral::request::Request;
use rerouter_dialect::neutral::target_terms::TargetTerms;
use rerouter_dialect::protocol::{Wanted, Way};
use rerouter_dialect::request_translation::{Translated, refused, write_count, write_request};
use rerouter_dialect::translate_answer::estimated_count;
use rerouter_routing::{StreamUsage, Target};

/// The header that marks a count of tokens as the gateway's estimate.
static ESTIMATED: HeaderName = HeaderName::from_static("x-rerouter-estimated");

impl InferenceCall {
    /// Writes the request for a target that speaks `dialect`, and plans the translation of its
    /// answer.
    pub(super) fn translate(&self, target: &Target, dialect: Dialect) -> Result<TranslatedRequest> {
        let endpoint = self.request.endpoint;
        let mut progress = self.progress();
        let read = progress.neutral.as_mut().ok_or_else(|| untranslatable("it was not read"))?;
        let request = read.as_mut().map_err(|why| untranslatable(&why.0))?;
        request.model = target.model.to_string();
        request.target = TargetTerms {
            completion_tokens: target.provider.takes_completion_tokens(),
            stream_usage: target.provider.stream_usage != StreamUsage::Never,
            reasoning_content: target.provider.takes_reasoning_content(),
            model: target.terms.clone(),
        };
        let (sent, wanted) = written_for(request, dialect, endpoint.counts())?;
        let Translated { body, dropped, header } = sent;
        let text_tools = request.tools.iter().filter(|tool| tool.free_text);
        let text_tools = text_tools.map(|tool| tool.name.clone()).collect();
        let namespaced = request.renamed_tools();
        let request_target = written(translated_request_target(target, dialect, wanted))?;
        progress.translation = Some(Box::new(AnswerPlan {
            from: dialect,
            to: endpoint.dialect(),
            counts: endpoint.counts(),
            context: AnswerContext {
                id: self.id.to_string(),
                model: target.model.to_string(),
                created: self.app.clock.now().as_second().unsigned_abs(),
                include_usage: self.request.includes_usage,
                text_tools,
                namespaced,
            },
            dropped,
        }));
        Ok(TranslatedRequest { request_target, body, header })
    }

    /// Answers a request to count tokens with our estimate, if the target's provider cannot count
    /// them. Returns whether it did.
    pub(super) fn answers_itself(&self, target: &Target) -> bool {
        let endpoint = self.request.endpoint;
        if !endpoint.counts() {
            return false;
        }
        let mut progress = self.progress();
        let is_estimated = match target.provider.way(endpoint) {
            Some(Way::Translated(dialect)) => match &progress.neutral {
                Some(Ok(request)) => refused(request, dialect).is_some(),
                _ => true,
            },
            way => way == Some(Way::Estimated),
        };
        if is_estimated {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(&ESTIMATED, HeaderValue::from_static("input_tokens"));
            progress.answer_ourselves(headers, estimated_count(self.prompt_tokens));
        }
        is_estimated
    }
}

/// The error of a request that cannot be translated. The decision excludes targets that would need
/// it.
fn untranslatable(member: &str) -> Box<Error> {
    let why = format!("the request cannot be translated: {member}");
    Error::explain(ErrorType::InternalError, why)
}

fn written_for(request: &Request, dialect: Dialect, counts: bool) -> Result<(Translated, Wanted)> {
    if counts {
        let sent = write_count(request, dialect).ok_or_else(|| untranslatable("a count"))?;
        return Ok((sent, Wanted::Count));
    }
    let sent = write_request(request, dialect).map_err(|why| untranslatable(&why.member))?;
    Ok((sent, if request.stream { Wanted::Stream } else { Wanted::Answer }))
}

fn translated_request_target(target: &Target, dialect: Dialect, wanted: Wanted) -> Option<Uri> {
    let provider = &target.provider;
    let Some(path) = provider.protocol.model_path(&target.model, wanted) else {
        return endpoint_request_target(target, dialect.endpoint()?, None);
    };
    let (path, query) =
        path.split_once('?').map_or((&*path, None), |(path, query)| (path, Some(query)));
    Uri::try_from(provider.base.request_target_at(path, query)).ok()
}
