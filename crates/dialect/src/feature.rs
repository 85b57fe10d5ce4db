//! What a request may ask for, and what becomes of it in each dialect: one table.
//!
//! A reader notes the features that a request uses. Before a writer runs, the table says of each
//! whether it is carried, dropped or refused. `docs/reference/translation.md` has the same table.

use super::Dialect;

rerouter_base::words! {
    /// What becomes of a feature in a dialect.
    pub enum Fate {
        Carried = "carried",
        /// Left out, and its member is named in `x-rerouter-dropped`.
        Dropped = "dropped",
        /// Answered with 400, because the answer would mean something else without it.
        Refused = "refused",
    }
}

/// Declares the features. Columns: name in texts, fates in chat, messages, responses and Gemini,
/// remark.
macro_rules! features {
    ($($feature:ident $title:literal $chat:ident $messages:ident $responses:ident $gemini:ident
       $remark:literal)*) => {
        /// Something that a request may ask for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Feature {
            $($feature,)*
        }

        impl Feature {
            pub const ALL: &'static [Feature] = &[$(Feature::$feature,)*];

            /// Its name in errors and in the reference.
            pub fn title(self) -> &'static str {
                match self {
                    $(Feature::$feature => $title,)*
                }
            }

            /// How the feature is translated, where that needs a remark; else empty.
            pub fn remark(self) -> &'static str {
                match self {
                    $(Feature::$feature => $remark,)*
                }
            }

            /// The fate of the feature in a request that is translated to `target`.
            pub fn fate(self, target: Dialect) -> Fate {
                use Fate::{Carried as C, Dropped as D, Refused as R};
                let fates = match self {
                    $(Feature::$feature => [$chat, $messages, $responses, $gemini],)*
                };
                let [chat, messages, responses, gemini] = fates;
                match target {
                    Dialect::Chat => chat,
                    Dialect::Messages => messages,
                    Dialect::Responses => responses,
                    Dialect::Gemini => gemini,
                    Dialect::Embeddings => R,
                }
            }
        }
    };
}

#[rustfmt::skip]
features! {
    Text "text" C C C C ""
    SystemText "system and developer text" C C C C
        "several texts become one `instructions` in responses; without any turn they are the user's"
    LaterSystemText "system text between turns" C C C C
        "moved in front of the conversation in messages and Gemini"
    Images "images, as data or by URL" C C C C ""
    ImageDetail "`detail` of an image" C D C D ""
    Files "PDF and text files, as data" C C C C "text files become text, save from and to messages"
    OtherFiles "files of other types, as data" C R C C ""
    FileUrls "files by URL" R C C C ""
    ProviderFiles "files and images by a provider's id" R R R R ""
    Audio "audio input" C R R C ""
    SearchResults "search results" C C C C "as text, with title and source"
    OtherContent "other kinds of content" R R R R "video, documents with images inside"
    Tools "function tools" C C C C
        "JSON Schema keeps its text, and gets `properties` in OpenAI's; in messages `anyOf` at its \
         top goes into the description"
    StrictTools "`strict` of a tool" C D C D "Anthropic refuses many of them, and bounds"
    Prefill "the beginning of the answer" R C R R
        "a last turn of the assistant in messages: other models begin anew, newer Claude refuses it"
    ToolCalls "tool calls, also parallel ones" C C C C
        "arguments that are no JSON object become `{\"arguments\": TEXT}` where an object is needed"
    ToolResults "tool results" C C C C ""
    ResultMedia "images and files in tool results" C C C C
        "in chat in a user message after the results, in Gemini beside the result"
    ResultErrors "`is_error` of a tool result" D C D C "the text of the result stays"
    ToolChoice "`tool_choice`" C C C C ""
    AllowedTools "`tool_choice` with allowed tools" C C C C "the other tools are left out"
    ParallelCalls "no parallel tool calls" C C C D ""
    ClientTools "Anthropic's bash, text editor and memory" C C C C "as function tools"
    CustomTools "tools that take free text" C C C C
        "as functions with one argument, `input`; a grammar goes into the description"
    Namespaces "tools in namespaces" C C C C
        "as functions with both names: `NAMESPACE__NAME`, of which the last 64 characters count"
    SameNames "several tools of one name" R R R R
        "with their namespaces, where these differ: the wrong one might be called"
    DeferredTools "tools that load later, tool search" D D D D "all tools are there from the start"
    WebSearch "web search" C C C C "`web_search_options` in chat, `googleSearch` in Gemini"
    OfferedSearch "web search beside function tools" D C C D
        "models that search in chat take no functions, and Gemini refuses both together"
    WebSearchAllowed "web search: allowed domains" R C C R ""
    WebSearchBlocked "web search: blocked domains" R C R R ""
    WebSearchPlace "web search: the user's place" C C C D ""
    WebSearchSize "web search: size of the context" C D C D ""
    WebFetch "web fetch" R C R C "`urlContext` in Gemini"
    CodeExecution "code execution" R C C C "`code_interpreter` in responses"
    McpServers "MCP servers" R C C R "those whose tools run without approval"
    McpTerms "MCP servers: approval, excluded tools, connectors, headers" R R R R
        "a list of allowed tools is carried"
    ServerTools "other tools of the provider" R R R R
        "file search, computer use, image generation, advisor"
    ToolUses "a limit of calls of the provider's tools" D D D D
        "`max_uses`, `max_tool_calls`: more calls may be made, and paid for"
    ServerToolHistory "earlier calls and results of a provider's tools" D D D D
        "the text around them stays"
    Thinking "thinking that is sent back" D D D D
        "carried to the dialect that sealed it; its text to DeepSeek and Moonshot"
    Reasoning "effort or budget of reasoning" C C C C "see [reasoning](#reasoning)"
    ReasoningSummary "whether reasoning is shown" D C C C ""
    CacheControl "`cache_control`" D C D D
        "on parts, messages and tools, as routers have it in chat"
    JsonObject "JSON output without a schema" C D C C "the prompt has to ask for JSON anyway"
    JsonSchema "output by a JSON schema" C C C C
        "in messages `additionalProperties` is `false` if not told, bounds are described, and \
         `oneOf` is `anyOf`"
    Verbosity "`verbosity`" C D C D ""
    MaxTokens "the limit of tokens" C C C C
        "messages needs one: the longest answer of the model, else 8192"
    Stop "stop sequences" C C R C "in messages without those that are blank"
    Temperature "`temperature`" C C C C
        "messages ends at 1: more becomes 1, and is named as dropped"
    TopP "`top_p`" C C C C "in messages dropped beside `temperature`"
    TopK "`top_k`" D C D C ""
    Seed "`seed`" C D D C ""
    Penalties "presence and frequency penalty" C D D C ""
    User "the end user's id" C C C D
        "`metadata.user_id` in messages; an e-mail address or phone number is dropped there"
    Stream "streams" C C C C "in the path for Gemini"
    SeveralAnswers "`n` over 1" R R R R "an answer is translated alone"
    Logprobs "log probabilities" R R R R ""
    LogitBias "`logit_bias`" R R R R ""
    AudioOutput "audio output" R R R R ""
    ImageOutput "images as output" R R R R ""
    Functions "`functions`, the old form of tools" R R R R ""
    StoredState "state that a provider stores" R R R R
        "`previous_response_id`, `conversation`, `prompt`, `container`, references to items"
    Compaction "a history that the provider compacted" R R R R ""
    Background "answers in the background" R R R R ""
    Moderation "moderation with the answer" R R R R ""
    Citations "citations of documents" R R R R ""
    Region "where inference runs" R R R R "`inference_geo`"
    Hints "hints that do not change the answer" D D D D
        "`store`, `metadata`, `service_tier` and the like"
    Unlisted "members that this table does not know" D D D D ""
}
