//! Generates descriptions of the command line: shell completions, manual pages, and the table in
//! `docs/reference/cli.md`.

use std::path::PathBuf;

use clap::{Arg, Args, Command};
use clap_complete::Shell;

use super::failure::{CommandFailure, Result};
use super::output::print;

#[derive(Args)]
pub(super) struct CompletionsArguments {
    /// Shell to complete in.
    shell: Shell,
}

#[derive(Args)]
pub(super) struct ManArguments {
    /// Directory to write a page for each command to. Default: print the first page.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the tables of docs/reference/cli.md.
    #[arg(long, hide = true, conflicts_with = "dir")]
    markdown: bool,
}

pub(super) fn completions(arguments: &CompletionsArguments, mut command: Command) -> Result<()> {
    let (mut script, name) = (Vec::new(), command.get_name().to_owned());
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script))
}

pub(super) fn man(arguments: &ManArguments, command: Command) -> Result<()> {
    if arguments.markdown {
        return print(&markdown(&command));
    }
    let failed = |error: std::io::Error| CommandFailure::Failed(error.to_string());
    let Some(dir) = &arguments.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(failed)?;
        return print(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command, dir))
        .map_err(|error| CommandFailure::Failed(format!("{}: {error}", dir.display())))
}

/// A section for each top-level command, with a table of its options and commands.
fn markdown(root: &Command) -> String {
    let mut out = String::new();
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        out.push_str(&format!("\n## {}\n\n| | |\n|---|---|\n", command.get_name()));
        let mut nouns = Vec::new();
        rows(command, &mut nouns, &mut out);
    }
    out
}

fn rows<'a>(command: &'a Command, above: &mut Vec<&'a str>, out: &mut String) {
    above.push(command.get_name());
    let shown = |arg: &&Arg| !arg.is_hide_set() && !arg.is_positional();
    let places = command.get_positionals().map(|arg| {
        let name = arg.get_value_names().and_then(|names| names.first());
        let name = name.map_or_else(|| arg.get_id().as_str().to_uppercase(), ToString::to_string);
        if arg.is_required_set() { format!(" {name}") } else { format!(" [{name}]") }
    });
    let places: String = places.collect();
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    row(&format!("**`rerouter {}{places}`**", above.join(" ")), &about, out);
    for arg in command.get_arguments().filter(shown) {
        row(&format!("`{}`", spelling(arg)), &meaning(arg), out);
    }
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        rows(below, above, out);
    }
    above.pop();
}

/// `-f, --follow`, or `--since TIME`.
fn spelling(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let long = arg.get_long().unwrap_or_default();
    let value = match arg.get_action().takes_values() {
        true => arg.get_value_names().and_then(|names| names.first()).map_or_else(
            || format!(" {}", arg.get_id().as_str().to_uppercase()),
            |name| format!(" {name}"),
        ),
        false => String::new(),
    };
    format!("{short}--{long}{value}")
}

/// The help of an option, with its possible values and its default.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // clap drops the full stop of a help with one sentence.
    if !text.is_empty() && !text.ends_with('.') {
        text.push('.');
    }
    let words: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !words.is_empty() && words.len() < 8 {
        text.push_str(&format!(" One of {}.", words.join(", ")));
    }
    let defaults = arg.get_default_values().iter().filter(|_| arg.get_action().takes_values());
    let defaults: Vec<String> =
        defaults.map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() {
        text.push_str(&format!(" Default: {}.", defaults.join(", ")));
    }
    text
}

/// Each cell has one line.
fn row(name: &str, text: &str, out: &mut String) {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    // clap drops the full stop at the end of a help text.
    let end = if text.is_empty() || text.ends_with('.') { "" } else { "." };
    out.push_str(&format!("| {name} | {text}{end} |\n"));
}
