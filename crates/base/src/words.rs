//! Enumerations whose values have words.

/// Declares an enumeration. Each value has one word, which is used in JSON, queries, the store and
/// labels of metrics.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $vis:vis enum $name:ident {
        $($(#[$value_about:meta])* $value:ident = $word:literal,)+
    }) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[schemars(inline)]
        $vis enum $name {
            $($(#[$value_about])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// All values.
            $vis const ALL: [$name; [$($word),+].len()] = [$($name::$value),+];

            /// The word of this value.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $($name::$value => $word,)+
                }
            }

            /// The value of a word.
            $vis fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$value),)+
                    _ => None,
                }
            }
        }
    };
}
