//! The parts of a message's content.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::seal::Seal;

/// The media type of files that declare none.
pub const PDF: &str = "application/pdf";

/// A part of what a user, a tool or a model says.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Image(Image),
    Audio {
        data: Base64,
        /// `wav`, `mp3` and the like.
        format: String,
    },
    File(File),
    ToolCall(ToolCall),
    /// A call of a tool that takes free text, in an answer. The arguments are the text.
    TextCall(ToolCall),
    ToolResult(ToolResult),
    Thinking(Thinking),
    /// The model's refusal in place of an answer.
    Refusal(String),
}

impl Part {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Part::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Part::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Base64 text as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64(pub String);

/// Where the bytes of an image or file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Url(String),
    Inline {
        media_type: String,
        data: Base64,
    },
    /// A text file, decoded.
    Text(String),
}

impl Source {
    /// Reads a URL, which may be a `data:` URL with base64 in it.
    pub(crate) fn of_url(url: String) -> Self {
        let Some((head, data)) = url.strip_prefix("data:").and_then(|rest| rest.split_once(','))
        else {
            return Source::Url(url);
        };
        let Some(media_type) = head.strip_suffix(";base64") else { return Source::Url(url) };
        let media_type = media_type.split(';').next().unwrap_or_default().to_ascii_lowercase();
        let media_type = match &*media_type {
            // A common mistake, which OpenAI takes.
            "image/jpg" => "image/jpeg".to_owned(),
            _ => media_type,
        };
        Source::Inline { media_type, data: Base64(data.to_owned()) }
    }

    /// Reads a file: a `data:` URL, a URL, or bare base64, which is taken for a PDF. A text file is
    /// decoded if it is UTF-8.
    pub(crate) fn of_file(file: String) -> Self {
        if !file.contains(':') {
            return Source::Inline { media_type: PDF.to_owned(), data: Base64(file) };
        }
        Source::of_url(file).decoded()
    }

    fn decoded(self) -> Self {
        let Source::Inline { media_type, data } = &self else { return self };
        let bytes = media_type.starts_with("text/").then(|| STANDARD.decode(&data.0).ok());
        match bytes.flatten().and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(text) => Source::Text(text),
            None => self,
        }
    }

    /// The URL, or the data as a `data:` URL.
    pub(crate) fn to_url(&self) -> String {
        match self {
            Source::Url(url) => url.clone(),
            Source::Inline { media_type, data } => format!("data:{media_type};base64,{}", data.0),
            Source::Text(text) => format!("data:text/plain;base64,{}", STANDARD.encode(text)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub source: Source,
    /// OpenAI's `detail`, such as `low`, `high` or `auto`.
    pub detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub source: Source,
    pub name: Option<String>,
}

impl File {
    /// A decoded text file, after its name, for dialects that have no text files. `None` for other
    /// files.
    pub(crate) fn as_text(&self) -> Option<String> {
        let Source::Text(text) = &self.source else { return None };
        Some(self.name.as_ref().map_or_else(|| text.clone(), |name| format!("{name}\n\n{text}")))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object as text. The model may have written invalid JSON.
    pub arguments: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    pub call_id: String,
    pub content: Vec<Part>,
    pub is_error: bool,
}

impl ToolResult {
    /// Its texts, without images and files.
    pub fn texts(&self) -> Vec<String> {
        let texts = self.content.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::File(file) => file.as_text(),
            _ => None,
        });
        texts.collect()
    }
}

/// Thinking of an earlier answer, which the client sends back to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Thinking {
    pub text: String,
    /// The provider's signature or encrypted thinking. Only its own dialect can read it.
    pub seal: Option<Seal>,
}
