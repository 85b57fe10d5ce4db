//! Writes JSON member by member. Raw values keep their text.

use serde::Serialize;

use super::neutral::json_text::{push_text, put_arguments, write_value};

pub(super) fn object(write: impl FnOnce(&mut Members<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    in_object(&mut out, write);
    out
}

fn in_object(out: &mut Vec<u8>, write: impl FnOnce(&mut Members<'_>)) {
    out.push(b'{');
    write(&mut Members { out, is_first: true });
    out.push(b'}');
}

fn in_array(out: &mut Vec<u8>, write: impl FnOnce(&mut Items<'_>)) {
    out.push(b'[');
    write(&mut Items { out, is_first: true });
    out.push(b']');
}

pub(super) struct Members<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl Members<'_> {
    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        write_value(name, self.out);
        self.out.push(b':');
    }

    pub(super) fn value(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.name(name);
        write_value(value, self.out);
    }

    /// Writes a member with a text value, by a writer that is fast for long texts.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        push_text(text, self.out);
    }

    pub(super) fn option(&mut self, name: &str, value: &Option<impl Serialize>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    pub(super) fn object(&mut self, name: &str, write: impl FnOnce(&mut Members<'_>)) {
        self.name(name);
        in_object(self.out, write);
    }

    pub(super) fn array(&mut self, name: &str, write: impl FnOnce(&mut Items<'_>)) {
        self.name(name);
        in_array(self.out, write);
    }

    /// Writes a tool call's arguments as an object.
    pub(super) fn arguments(&mut self, name: &str, arguments: &str) {
        self.name(name);
        put_arguments(arguments, self.out);
    }
}

pub(super) struct Items<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl Items<'_> {
    fn next(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
    }

    pub(super) fn object(&mut self, write: impl FnOnce(&mut Members<'_>)) {
        self.next();
        in_object(self.out, write);
    }

    /// Writes `{"type": kind, "text": text}`.
    pub(super) fn text(&mut self, kind: &str, text: &str) {
        self.object(|object| {
            object.value("type", kind);
            object.text("text", text);
        });
    }

    /// Writes `{"type": kind, member: value}`.
    pub(super) fn typed(&mut self, kind: &str, member: &str, value: &(impl Serialize + ?Sized)) {
        self.object(|object| {
            object.value("type", kind);
            object.value(member, value);
        });
    }
}
