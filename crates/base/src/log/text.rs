//! Log lines as text for people. Text from outside may hold any character. Characters that move the
//! cursor or change the colour or direction of text are written as escapes.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use super::access_line::AccessLine;
use super::diagnostic::Diagnostic;
use crate::clock::rfc3339;

/// Colours of terminals (ECMA-48, SGR).
#[derive(Clone, Copy)]
enum Color {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
    Grey = 90,
}

struct Painted<T>(T, Option<Color>);

impl<T: Display> Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(color) => write!(f, "\x1b[{}m{}\x1b[0m", color as u8, self.0),
            None => self.0.fmt(f),
        }
    }
}

/// Text from outside, on one line.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match is_plain(c) {
            true => f.write_char(c),
            false => write!(f, "{}", c.escape_default()),
        })
    }
}

/// Whether a terminal only shows the character. Control characters, line breaks, direction marks
/// and other invisible characters (Unicode's `Cc`, `Zl`, `Zp`, and those of `Cf` that terminals act
/// on) are not plain.
fn is_plain(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !is_format
}

/// `17:04:05.123 WARN gateway::edge: MESSAGE`. Further lines of a message are indented.
pub(super) fn diagnostic(line: &Diagnostic<'_>, color: bool) -> String {
    let level = match line.level {
        "ERROR" => Color::Red,
        "WARN" => Color::Yellow,
        "INFO" => Color::Green,
        _ => Color::Grey,
    };
    let paint = |painted| color.then_some(painted);
    let target = line.target.strip_prefix("rerouter::").unwrap_or(line.target);
    let mut text = format!(
        "{} {} {}",
        Painted(time(&line.at), paint(Color::Grey)),
        Painted(format_args!("{:<5}", line.level), paint(level)),
        Painted(format_args!("{target}:"), paint(Color::Grey)),
    );
    let mut before = " ";
    for part in line.message.lines() {
        let _written = write!(text, "{before}{}", Escaped(part));
        before = "\n    ";
    }
    text.push('\n');
    text
}

/// `17:04:05.123 200 POST /v1/chat/completions 1.23s auto → openai/gpt-4o 7+3 tokens $0.000044
/// req_…`.
pub(super) fn access(line: &AccessLine, color: bool) -> String {
    let paint = |painted| color.then_some(painted);
    let status = match line.status {
        500.. => Color::Red,
        400.. => Color::Yellow,
        _ => Color::Green,
    };
    let took = Duration::from_micros(line.duration_us);
    let mut text = format!(
        "{} {} {} {} {}",
        Painted(time(&rfc3339(line.at)), paint(Color::Grey)),
        Painted(line.status, paint(status)),
        line.method,
        Escaped(&line.path),
        Painted(format_args!("{took:.2?}"), paint(Color::Grey)),
    );
    // Writing to a `String` cannot fail.
    let _written = describe(line, &mut text, paint);
    text.push('\n');
    text
}

fn describe(
    line: &AccessLine,
    text: &mut String,
    paint: impl Fn(Color) -> Option<Color>,
) -> fmt::Result {
    if let Some(model) = &line.model {
        write!(text, " {}", Painted(Escaped(model), paint(Color::Cyan)))?;
    }
    if let (Some(provider), Some(model)) = (&line.provider, &line.served_model) {
        write!(text, " → {}/{}", Escaped(provider), Escaped(model))?;
    }
    if let Some(attempts) = line.attempts.filter(|attempts| *attempts > 1) {
        write!(text, " after {attempts} attempts")?;
    }
    if let Some(ttft) = line.ttft_ms {
        write!(text, " first {ttft}ms")?;
    }
    if let (Some(prompt), Some(completion)) = (line.prompt_tokens, line.completion_tokens) {
        let about = if line.usage_estimated { "~" } else { "" };
        write!(text, " {about}{prompt}+{completion} tokens")?;
    }
    if let Some(cost) = line.cost_usd {
        write!(text, " ${cost}")?;
    }
    if let Some(error) = &line.error {
        write!(text, " {}", Painted(Escaped(error), paint(Color::Red)))?;
    }
    if let Some(cause) = &line.cause {
        write!(text, " ({})", Escaped(cause))?;
    }
    let key = line.key.as_ref().map(|key| key.as_str());
    for id in key.into_iter().chain([line.request_id.as_str()]) {
        write!(text, " {}", Painted(Escaped(id), paint(Color::Grey)))?;
    }
    if let Some(trace) = line.trace_id {
        write!(text, " {}", Painted(format_args!("trace={trace}"), paint(Color::Grey)))?;
    }
    Ok(())
}

/// The time of day of an RFC 3339 time, to the millisecond.
fn time(at: &str) -> &str {
    at.get(11..23).unwrap_or(at)
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
