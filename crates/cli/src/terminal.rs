//! The terminal: its width and colours, questions, and typed secrets.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios};

use super::failure::{CommandFailure, Result};
use super::output::print_error;

/// Width of the terminal on standard output, in columns; `None` if it is no terminal.
pub(super) fn width() -> Option<u16> {
    let out = io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(out).ok()).flatten()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

#[derive(Clone, Copy)]
pub(super) enum TextStyle {
    Title,
    Good,
    Doubtful,
    Bad,
}

/// The text in a style, if standard output can show it: not in pipes, and not with `NO_COLOR`.
pub(super) fn styled(text: &str, style: TextStyle) -> String {
    if anstream::AutoStream::choice(&io::stdout()) == anstream::ColorChoice::Never {
        return text.to_owned();
    }
    let code = match style {
        TextStyle::Title => 1,
        TextStyle::Good => 32,
        TextStyle::Doubtful => 33,
        TextStyle::Bad => 31,
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Asks on a terminal before a step that cannot be undone. Without a terminal, as in a script, does
/// not ask.
pub(super) fn confirm(yes: bool, what: &str) -> Result<()> {
    let input = io::stdin();
    if yes || !input.is_terminal() {
        return Ok(());
    }
    match ask(&format!("{what} [y/N] "))?.to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CommandFailure::Failed("nothing was done".to_owned())),
    }
}

/// Asks for a line; empty at the end of the input.
pub(super) fn ask(question: &str) -> Result<String> {
    let failed = |error: io::Error| CommandFailure::Usage(format!("standard input: {error}"));
    let mut error = io::stderr();
    error.write_all(question.as_bytes()).and_then(|()| error.flush()).map_err(failed)?;
    read_line().map_err(failed)
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// Reads a secret: from a terminal without showing it, else the first line of standard input.
pub(super) fn read_secret(question: &str) -> Result<String> {
    let input = io::stdin();
    if !input.is_terminal() {
        return read_line()
            .map_err(|error| CommandFailure::Usage(format!("standard input: {error}")));
    }
    let hidden = HiddenInput::begin();
    let line = ask(question);
    drop(hidden);
    print_error("\n");
    line
}

/// Hides typed input until it is dropped.
struct HiddenInput(Option<Termios>);

impl HiddenInput {
    fn begin() -> HiddenInput {
        let input = io::stdin();
        let before = rustix::termios::tcgetattr(&input).ok();
        if let Some(mut hidden) = before.clone() {
            hidden.local_modes.remove(LocalModes::ECHO);
            // If the terminal cannot hide the input, it stays visible.
            let _ = rustix::termios::tcsetattr(&input, OptionalActions::Flush, &hidden);
        }
        HiddenInput(before)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
