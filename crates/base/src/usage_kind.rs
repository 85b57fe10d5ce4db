//! The kinds of usage that providers bill. A kind is one row: what it counts, the price of a
//! document that pays for it, and the members of usage objects that tell it. Each kind but those
//! that every answer has is also a column of the store, which a migration step adds.

/// What a price is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageUnit {
    /// US dollars per million tokens of the prompt.
    Prompt,
    /// US dollars per million tokens of the answer.
    Answer,
    /// US dollars per thousand pieces.
    Piece,
}

macro_rules! usage_kinds {
    (@unit Piece) => { " US dollars per thousand." };
    (@unit $tokens:ident) => { " US dollars per million." };
    (
        always { $(
            $(#[doc = $base_about:literal])+
            $base:ident: $base_price:ident, $base_unit:ident;
        )+ }
        told { $(
            $(#[doc = $about:literal])+ $(#[serde $attribute:tt])?
            $kind:ident $count:ident: $price:ident, $unit:ident,
            within [$($within:ident),*], told by [$($path:literal),*];
        )+ }
    ) => {
        /// A kind of usage.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum UsageKind {
            $($(#[doc = $base_about])+ $base,)+
            $($(#[doc = $about])+ $kind,)+
        }

        impl UsageKind {
            /// All kinds.
            pub const ALL: [UsageKind; [$(stringify!($base),)+ $(stringify!($kind)),+].len()] =
                [$(UsageKind::$base,)+ $(UsageKind::$kind),+];

            /// The key of the price in a document.
            pub const fn price(self) -> &'static str {
                match self {
                    $(UsageKind::$base => stringify!($base_price),)+
                    $(UsageKind::$kind => stringify!($price),)+
                }
            }

            pub const fn unit(self) -> UsageUnit {
                match self {
                    $(UsageKind::$base => UsageUnit::$base_unit,)+
                    $(UsageKind::$kind => UsageUnit::$unit,)+
                }
            }

            /// What the price is for, in Markdown.
            pub const fn about_price(self) -> &'static str {
                match self {
                    $(
                        UsageKind::$base =>
                            concat!(usage_kinds!(@unit $base_unit), $($base_about),+),
                    )+
                    $(UsageKind::$kind => concat!(usage_kinds!(@unit $unit), $($about),+),)+
                }
            }

            /// The kinds whose counts include this one. The first has the price of this kind, if it
            /// has none of its own.
            pub const fn within(self) -> &'static [UsageKind] {
                match self {
                    $(UsageKind::$base => &[],)+
                    $(UsageKind::$kind => &[$(UsageKind::$within),*],)+
                }
            }

            /// The kind that a member of a usage object counts: its path, the names joined by `.`.
            /// Members of lists of modalities have the modality as their name.
            pub fn told_by(path: &str) -> Option<UsageKind> {
                match path {
                    $($($path => Some(UsageKind::$kind),)*)+
                    _ => None,
                }
            }
        }

        /// How much was used of each kind that not every answer has; `None` if it was not told.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        pub struct UsageCounts {
            $(
                $(#[doc = $about])+
                $(#[serde $attribute])?
                pub $count: Option<u64>,
            )+
        }

        impl UsageCounts {
            /// The names of the counts, in the order of [`UsageCounts::all`].
            pub const NAMES: [&str; [$(stringify!($count)),+].len()] = [$(stringify!($count)),+];

            pub const fn all(&self) -> [Option<u64>; Self::NAMES.len()] {
                [$(self.$count),+]
            }

            pub const fn of([$($count),+]: [Option<u64>; Self::NAMES.len()]) -> Self {
                UsageCounts { $($count),+ }
            }

            /// The count of a kind; `None` for the kinds that every answer has.
            pub const fn get(&self, kind: UsageKind) -> Option<u64> {
                match kind {
                    $(UsageKind::$kind => self.$count,)+
                    _ => None,
                }
            }

            pub fn set(&mut self, kind: UsageKind, count: u64) {
                match kind {
                    $(UsageKind::$kind => self.$count = Some(count),)+
                    _ => {}
                }
            }
        }

        /// Sums of each kind that not every answer has.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(default)]
        pub struct UsageCountSums {
            $($(#[doc = $about])+ pub $count: u64,)+
        }

        impl UsageCountSums {
            pub const fn all(&self) -> [u64; UsageCounts::NAMES.len()] {
                [$(self.$count),+]
            }

            pub const fn of([$($count),+]: [u64; UsageCounts::NAMES.len()]) -> Self {
                UsageCountSums { $($count),+ }
            }

            pub const fn add(&mut self, more: &Self) {
                $(self.$count = self.$count.saturating_add(more.$count);)+
            }
        }
    };
}

usage_kinds! {
    always {
    /// Tokens of the prompt that no other kind counts.
    Input: input_per_mtok, Prompt;
    /// Tokens of the answer that no other kind counts.
    Output: output_per_mtok, Answer;
    /// The request itself.
    Request: requests_per_k, Piece;
    }

    told {
    /// Prompt tokens read from the provider's cache.
    Cached cached_tokens: cached_input_per_mtok, Prompt, within [Input], told by [
        "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
        "cache_read_input_tokens", "prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens",
        "cachedContentTokenCount"
    ];
    /// Audio tokens read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    CachedAudio cached_audio_tokens: cached_audio_per_mtok, Prompt, within [Cached, InputAudio],
    told by [
        "prompt_tokens_details.cached_tokens_details.audio_tokens",
        "input_tokens_details.cached_tokens_details.audio_tokens", "cacheTokensDetails.AUDIO"
    ];
    /// Prompt tokens written to the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    CacheWrite cache_write_tokens: cache_write_per_mtok, Prompt, within [Input], told by [
        "cache_creation_input_tokens", "prompt_tokens_details.cache_write_tokens",
        "input_tokens_details.cache_write_tokens", "prompt_tokens_details.cache_creation_tokens"
    ];
    /// Prompt tokens written to the provider's cache for one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    CacheWrite1h cache_write_1h_tokens: cache_write_1h_per_mtok, Prompt, within [CacheWrite],
    told by ["cache_creation.ephemeral_1h_input_tokens"];
    /// Audio tokens of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    InputAudio input_audio_tokens: input_audio_per_mtok, Prompt, within [Input], told by [
        "prompt_tokens_details.audio_tokens", "input_tokens_details.audio_tokens",
        "promptTokensDetails.AUDIO"
    ];
    /// Image tokens of the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    InputImage input_image_tokens: input_image_per_mtok, Prompt, within [Input], told by [
        "prompt_tokens_details.image_tokens", "input_tokens_details.image_tokens",
        "promptTokensDetails.IMAGE"
    ];
    /// Tokens of the answer that are reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    Reasoning reasoning_tokens: reasoning_per_mtok, Answer, within [Output], told by [
        "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens",
        "output_tokens_details.thinking_tokens", "reasoning_tokens", "thoughtsTokenCount"
    ];
    /// Audio tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    OutputAudio output_audio_tokens: output_audio_per_mtok, Answer, within [Output], told by [
        "completion_tokens_details.audio_tokens", "output_tokens_details.audio_tokens",
        "candidatesTokensDetails.AUDIO"
    ];
    /// Image tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    OutputImage output_image_tokens: output_image_per_mtok, Answer, within [Output], told by [
        "completion_tokens_details.image_tokens", "output_tokens_details.image_tokens",
        "candidatesTokensDetails.IMAGE"
    ];
    /// Web searches of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    WebSearch web_searches: web_searches_per_k, Piece, within [], told by [
        "server_tool_use.web_search_requests",
        "server_tool_use_details.web_search_requests", "num_search_queries"
    ];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_unit_of_what_it_is_within() {
        for kind in UsageKind::ALL {
            for whole in kind.within() {
                assert_eq!(kind.unit(), whole.unit(), "{kind:?}");
            }
        }
    }
}
