//! Facts of a request for a message. Content is a text or a list of blocks.

use std::borrow::Cow;
use std::ops::Range;

use super::super::request::media::{ImageRule, PromptSize, TOKENS_PER_FILE};
use super::super::request::member_names::MemberNames;
use super::super::request::model_request::{RequestBuilder, TOKENS_PER_CALL, TOKENS_PER_MESSAGE};
use super::super::request::text::{inside, read_word, tokens_of};
use super::super::request::tools::{FORMAT, read_format, read_format_within, read_tools};
use crate::neutral::seal;
use crate::wire::json::{Cursor, JsonError, JsonKind};
use crate::wire::tokens;
use rerouter_base::error::Error;

pub(crate) fn member(
    cursor: &mut Cursor<'_>,
    name: &str,
    builder: &mut RequestBuilder,
) -> Result<(), JsonError> {
    match name {
        "messages" => {
            if cursor.kind()? != JsonKind::Array {
                cursor.skip()?;
                return Err(Error::invalid("messages", "`messages` has to be an array.").into());
            }
            cursor.elements(|cursor| message(cursor, &mut builder.prompt))?;
        }
        "system" => {
            let mut system = BlockContent::default();
            system.read(cursor, &mut builder.prompt)?;
            builder.system_tokens = TOKENS_PER_MESSAGE + system.tokens(cursor);
        }
        "tools" => read_tools(cursor, builder)?,
        "output_format" => {
            read_format(cursor, MemberNames::new("output_format.", FORMAT), "schema", builder)?
        }
        "output_config" => {
            read_format_within(cursor, "output_config.", "output_config.format.", builder)?
        }
        _ => cursor.pass()?,
    }
    Ok(())
}

fn message(cursor: &mut Cursor<'_>, prompt: &mut PromptSize) -> Result<(), JsonError> {
    prompt.messages += 1;
    let (mut role, mut content) = (None, BlockContent::default());
    let mut names = MemberNames::new("messages.", &["role", "content"]);
    cursor.members(|cursor, name| {
        match names.find(&name)? {
            "role" => role = read_word(cursor)?,
            "content" => content.read(cursor, prompt)?,
            _ => cursor.pass()?,
        }
        Ok(())
    })?;
    prompt.tokens += content.tokens(cursor);
    // Tool results have the user's role too. In that case the user's own text is in an earlier
    // message.
    if role.as_deref() == Some("user") && !(content.text.is_empty() && content.results) {
        prompt.user_text = content.text;
    }
    Ok(())
}

/// The content of a message or block.
#[derive(Default)]
struct BlockContent {
    /// Strings of text blocks.
    text: Vec<Range<usize>>,
    /// Strings of documents and tool results.
    told: Vec<Range<usize>>,
    /// Whether it has tool results.
    results: bool,
    /// Tokens of tool calls.
    calls: u64,
}

#[derive(Default)]
struct ContentBlock<'a> {
    kind: Option<Cow<'a, str>>,
    text: Option<Range<usize>>,
    below: BlockContent,
    call: u64,
    source: BlockSource<'a>,
}

/// The source of a document or image.
#[derive(Default)]
struct BlockSource<'a> {
    kind: Option<Cow<'a, str>>,
    data: Option<Range<usize>>,
    /// Whether it is a URL or a file id.
    is_elsewhere: bool,
    /// Whether it is a JSON object.
    is_there: bool,
}

/// Characters per token in an encrypted result of a server tool.
const ENCRYPTED_CHARACTERS: u64 = 8;

impl BlockContent {
    fn read(&mut self, cursor: &mut Cursor<'_>, prompt: &mut PromptSize) -> Result<(), JsonError> {
        match cursor.kind()? {
            JsonKind::String => self.text.push(cursor.skip()?),
            JsonKind::Array => cursor.elements(|cursor| self.block(cursor, prompt))?,
            JsonKind::Object => self.block(cursor, prompt)?,
            _ => cursor.pass()?,
        }
        Ok(())
    }

    fn tokens(&self, cursor: &Cursor<'_>) -> u64 {
        let strings = self.text.iter().chain(&self.told);
        self.calls + strings.map(|span| tokens_of(cursor, span)).sum::<u64>()
    }

    fn block(&mut self, cursor: &mut Cursor<'_>, prompt: &mut PromptSize) -> Result<(), JsonError> {
        let mut block = ContentBlock::default();
        let mut names = MemberNames::new(
            "content.",
            &[
                "type",
                "text",
                "content",
                "source",
                "name",
                "input",
                "encrypted_content",
                "signature",
            ],
        );
        cursor.members(|cursor, name| {
            match names.find(&name)? {
                "type" => block.kind = read_word(cursor)?,
                "text" if cursor.kind()? == JsonKind::String => block.text = Some(cursor.skip()?),
                "content" => block.below.read(cursor, prompt)?,
                "source" => block.source.read(cursor, prompt, &mut block.below)?,
                "name" | "input" => {
                    let span = cursor.skip()?;
                    block.call += tokens::estimate(cursor.raw(&span));
                }
                "encrypted_content" => {
                    block.below.calls += cursor.skip()?.len() as u64 / ENCRYPTED_CHARACTERS
                }
                "signature" => {
                    prompt.has_foreign_thinking |=
                        read_word(cursor)?.is_some_and(|signature| seal::is_foreign(&signature));
                }
                _ => cursor.pass()?,
            }
            Ok(())
        })?;
        self.add(block, cursor, prompt);
        Ok(())
    }

    fn add(&mut self, block: ContentBlock<'_>, cursor: &Cursor<'_>, prompt: &mut PromptSize) {
        let ContentBlock { kind, text, below, call, source } = block;
        let data = |source: &BlockSource| {
            source.data.as_ref().map(|span| inside(cursor, span)).unwrap_or_default()
        };
        let is_source = matches!(kind.as_deref(), Some("image" | "document"));
        prompt.is_open |= source.is_there && !is_source;
        match kind.as_deref() {
            Some("text") => self.text.extend(text),
            Some("image") => prompt.image(data(&source), ImageRule::Anthropic),
            Some("document") => {
                prompt.is_open |= source.is_elsewhere
                    || !matches!(source.kind.as_deref(), Some("base64" | "text" | "content"));
                if source.kind.as_deref() == Some("base64") {
                    prompt.file(data(&source));
                } else if source.is_elsewhere {
                    prompt.tokens += TOKENS_PER_FILE;
                }
            }
            Some(kind) if kind.ends_with("tool_use") => self.calls += TOKENS_PER_CALL + call,
            Some(kind) if kind.ends_with("tool_result") => self.results = true,
            // Thinking is not part of the next prompt, except within a turn.
            Some("thinking" | "redacted_thinking") => return,
            // Results have their content inline, even if they name files.
            Some(kind)
                if ["_result", "_error", "_output", "_reference", "compaction"]
                    .iter()
                    .any(|end| kind.ends_with(end)) => {}
            _ => prompt.is_open = true,
        }
        self.calls += below.calls;
        self.told.extend(below.text.into_iter().chain(below.told));
    }
}

impl<'a> BlockSource<'a> {
    fn read(
        &mut self,
        cursor: &mut Cursor<'a>,
        prompt: &mut PromptSize,
        below: &mut BlockContent,
    ) -> Result<(), JsonError> {
        self.is_there = cursor.kind()? == JsonKind::Object;
        let mut names =
            MemberNames::new("content.source.", &["type", "data", "url", "file_id", "content"]);
        cursor.members(|cursor, name| {
            match names.find(&name)? {
                "type" => self.kind = read_word(cursor)?,
                "data" if cursor.kind()? == JsonKind::String => self.data = Some(cursor.skip()?),
                "url" | "file_id" => {
                    self.is_elsewhere |= cursor.kind()? != JsonKind::Null;
                    cursor.pass()?;
                }
                "content" => below.read(cursor, prompt)?,
                _ => cursor.pass()?,
            }
            Ok(())
        })?;
        if self.kind.as_deref() == Some("text") {
            below.told.extend(self.data.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "request_facts_tests.rs"]
mod tests;
