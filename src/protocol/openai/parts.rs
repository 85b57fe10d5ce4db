//! The parts of a content, as chat completions and responses have them. Some servers go by the type
//! of a part, some by its members: each that is there counts.

use std::ops::Range;

use super::super::json::{Cursor, Fault, Shape};
use super::super::known::Known;
use super::super::media::{Prompt, Rule};
use super::super::tokens;
use super::{inside, read_inside, read_word};

/// Those that are acted on.
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

/// Members of a part that say nothing of how long it is, or are text.
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

/// What a part holds.
#[derive(Default)]
struct Part {
    kind: Option<String>,
    /// Where the address of an image stands.
    image: Option<Range<usize>>,
    is_small: bool,
    /// Where a file stands, in base64.
    file: Option<Range<usize>>,
    has_audio: bool,
    has_id: bool,
    /// Whether the address of something that is no image is there.
    has_address: bool,
}

/// Reads a part; its texts are added to `text`.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    prompt: &mut Prompt,
    text: &mut Vec<Range<usize>>,
) -> Result<(), Fault> {
    match cursor.shape()? {
        Shape::Object => {}
        Shape::String => {
            text.push(cursor.skip()?);
            return Ok(());
        }
        _ => return cursor.pass(),
    }
    let mut part = Part::default();
    let mut known = Known::of("content.", NAMES);
    cursor.members(|cursor, name| {
        let found = known.find(&name)?;
        prompt.is_open |= found.is_empty() && !OTHERS.contains(&&*name.text());
        match found {
            "type" => part.kind = read_word(cursor)?,
            "text" | "refusal" if cursor.shape()? == Shape::String => {
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

impl Part {
    /// Reads an address, or an object that has it. Gives whether all of its members are known: some
    /// servers take the size to which an image is scaled.
    fn read_image(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
        if cursor.shape()? != Shape::Object {
            self.image = Some(cursor.skip()?);
            return Ok(true);
        }
        let start = cursor.place();
        self.image = Some(start..start);
        let mut is_known = true;
        let mut known = Known::of("content.image_url.", &["url", "detail", "format"]);
        cursor.members(|cursor, name| {
            match known.find(&name)? {
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

    fn read_file(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let mut known = Known::of("content.file.", &["file_data", "file_id", "file_url"]);
        cursor.members(|cursor, name| {
            match known.find(&name)? {
                "file_data" => self.file = string(cursor)?,
                "file_id" => self.has_id |= is_there(cursor)?,
                "file_url" => self.has_address |= is_there(cursor)?,
                _ => cursor.pass()?,
            }
            Ok(())
        })
    }

    /// Adds what is no text, and notes what cannot be seen.
    fn add(self, cursor: &Cursor<'_>, prompt: &mut Prompt) {
        let kind = self.kind.as_deref();
        let is_image = self.image.is_some()
            || matches!(kind, Some("image_url" | "input_image" | "image" | "computer_screenshot"));
        let is_audio = self.has_audio || kind == Some("input_audio");
        let is_file = self.file.is_some() || matches!(kind, Some("file" | "input_file"));
        if is_image {
            let address = self.image.map(|span| inside(cursor, &span)).unwrap_or_default();
            prompt.image(address, Rule::OpenAi { small: self.is_small });
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

fn read_audio(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    if cursor.shape()? != Shape::Object {
        prompt.audio(read_inside(cursor)?);
        return Ok(());
    }
    let mut data: &[u8] = b"";
    let mut known = Known::of("content.input_audio.", &["data"]);
    cursor.members(|cursor, name| match known.find(&name)? {
        "" => cursor.pass(),
        _ => read_inside(cursor).map(|read| data = read),
    })?;
    prompt.audio(data);
    Ok(())
}

/// Where a string stands, if it is one.
fn string(cursor: &mut Cursor<'_>) -> Result<Option<Range<usize>>, Fault> {
    let is_text = cursor.shape()? == Shape::String;
    cursor.skip().map(|span| is_text.then_some(span))
}

/// Whether there is more than null.
fn is_there(cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    let is_there = cursor.shape()? != Shape::Null;
    cursor.pass().map(|()| is_there)
}
