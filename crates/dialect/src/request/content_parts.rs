//! Content parts of chat completions and responses. Some servers follow the type of a part, others
//! its members, so both count.

use std::borrow::Cow;
use std::ops::Range;

use super::media::{ImageRule, PromptSize};
use super::member_names::MemberNames;
use super::text::{inside, read_inside, read_word};
use crate::wire::json::{Cursor, JsonError, JsonKind};
use crate::wire::tokens;

/// Members that the gateway reads.
const NAMES: &[&str] = &[
    "type",
    "text",
    "refusal",
    "thinking",
    "image_url",
    "detail",
    "input_audio",
    "file",
    "file_data",
    "file_id",
    "file_url",
    "video_url",
    "audio_url",
];

/// Members that are text or do not affect the size of a part.
const OTHERS: &[&str] = &[
    "annotations",
    "cache_control",
    "citations",
    "encrypted_content",
    "filename",
    "format",
    "id",
    "index",
    "logprobs",
    "name",
    "signature",
    "status",
    "summary",
    "title",
];

#[derive(Default)]
struct ContentPart<'a> {
    kind: Option<Cow<'a, str>>,
    /// The span of the image's URL.
    image: Option<Range<usize>>,
    is_small: bool,
    /// The span of a file in base64.
    file: Option<Range<usize>>,
    has_audio: bool,
    has_id: bool,
    /// Whether it has the URL of a file, video or audio.
    has_address: bool,
}

pub(crate) fn read(
    cursor: &mut Cursor<'_>,
    prompt: &mut PromptSize,
    text: &mut Vec<Range<usize>>,
) -> Result<(), JsonError> {
    match cursor.kind()? {
        JsonKind::Object => {}
        JsonKind::String => {
            text.push(cursor.skip()?);
            return Ok(());
        }
        _ => return cursor.pass(),
    }
    let mut part = ContentPart::default();
    let mut names = MemberNames::new("content.", NAMES);
    cursor.members(|cursor, name| {
        let found = names.find(&name)?;
        prompt.is_open |= found.is_empty() && !OTHERS.contains(&&*name.text());
        match found {
            "type" => part.kind = read_word(cursor)?,
            "text" | "refusal" if cursor.kind()? == JsonKind::String => {
                text.push(cursor.skip()?);
            }
            "thinking" => {
                let thoughts = cursor.skip()?;
                prompt.tokens += tokens::estimate(cursor.raw(&thoughts));
            }
            "image_url" => prompt.is_open |= !part.read_image(cursor)?,
            "detail" => part.is_small |= read_word(cursor)?.as_deref() == Some("low"),
            "input_audio" => {
                part.has_audio = true;
                read_audio(cursor, prompt)?;
            }
            "file" => part.read_file(cursor)?,
            "file_data" => part.file = string(cursor)?,
            "file_id" => part.has_id |= is_there(cursor)?,
            "file_url" | "video_url" | "audio_url" => part.has_address |= is_there(cursor)?,
            _ => cursor.pass()?,
        }
        Ok(())
    })?;
    part.add(cursor, prompt);
    Ok(())
}

impl ContentPart<'_> {
    /// Reads a URL, or an object with a URL. Returns whether all its members are known: some
    /// servers accept the size to which the image is scaled.
    fn read_image(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, JsonError> {
        if cursor.kind()? != JsonKind::Object {
            self.image = Some(cursor.skip()?);
            return Ok(true);
        }
        let start = cursor.position();
        self.image = Some(start..start);
        let mut is_known = true;
        let mut names = MemberNames::new("content.image_url.", &["url", "detail", "format"]);
        cursor.members(|cursor, name| {
            match names.find(&name)? {
                "url" => self.image = Some(cursor.skip()?),
                "detail" => self.is_small |= read_word(cursor)?.as_deref() == Some("low"),
                found => {
                    is_known &= !found.is_empty();
                    cursor.pass()?;
                }
            }
            Ok(())
        })?;
        Ok(is_known)
    }

    fn read_file(&mut self, cursor: &mut Cursor<'_>) -> Result<(), JsonError> {
        let mut names = MemberNames::new("content.file.", &["file_data", "file_id", "file_url"]);
        cursor.members(|cursor, name| {
            match names.find(&name)? {
                "file_data" => self.file = string(cursor)?,
                "file_id" => self.has_id |= is_there(cursor)?,
                "file_url" => self.has_address |= is_there(cursor)?,
                _ => cursor.pass()?,
            }
            Ok(())
        })
    }

    /// Adds the part's images, audio and files to the prompt. Content of unknown size makes the
    /// prompt open.
    fn add(self, cursor: &Cursor<'_>, prompt: &mut PromptSize) {
        let kind = self.kind.as_deref();
        let is_image = self.image.is_some()
            || matches!(kind, Some("image_url" | "input_image" | "image" | "computer_screenshot"));
        let is_audio = self.has_audio || kind == Some("input_audio");
        let is_file = self.file.is_some() || matches!(kind, Some("file" | "input_file"));
        if is_image {
            let address = self.image.map(|span| inside(cursor, &span)).unwrap_or_default();
            prompt.image(address, ImageRule::OpenAi { small: self.is_small });
        }
        if is_audio && !self.has_audio {
            prompt.audio(b"");
        }
        if is_file {
            prompt.file(self.file.map(|span| inside(cursor, &span)).unwrap_or_default());
        }
        let is_text = match kind {
            Some(kind) => {
                matches!(kind, "text" | "refusal" | "thinking") || kind.ends_with("_text")
            }
            None => true,
        };
        let is_known = is_text || is_image || is_audio || is_file;
        prompt.is_open |= !is_known || self.has_address || (self.has_id && !is_image);
    }
}

fn read_audio(cursor: &mut Cursor<'_>, prompt: &mut PromptSize) -> Result<(), JsonError> {
    if cursor.kind()? != JsonKind::Object {
        prompt.audio(read_inside(cursor)?);
        return Ok(());
    }
    let mut data: &[u8] = b"";
    let mut names = MemberNames::new("content.input_audio.", &["data"]);
    cursor.members(|cursor, name| match names.find(&name)? {
        "" => cursor.pass(),
        _ => read_inside(cursor).map(|read| data = read),
    })?;
    prompt.audio(data);
    Ok(())
}

/// The span of the value, if it is a string.
fn string(cursor: &mut Cursor<'_>) -> Result<Option<Range<usize>>, JsonError> {
    let is_text = cursor.kind()? == JsonKind::String;
    cursor.skip().map(|span| is_text.then_some(span))
}

/// Whether the value is not null.
fn is_there(cursor: &mut Cursor<'_>) -> Result<bool, JsonError> {
    let is_there = cursor.kind()? != JsonKind::Null;
    cursor.pass().map(|()| is_there)
}
