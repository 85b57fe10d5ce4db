//! Names of members that the gateway reads. JSON parsers differ in which of two members with one
//! name they use (RFC 8259 section 4). Some also match other cases or camel case, or ignore what
//! follows a NUL. So each of these members may occur once and in one spelling: the gateway decides,
//! limits and bills by the value that the provider reads.

use crate::wire::json::{JsonError, MemberName};
use rerouter_base::error::Error;

/// The names of one object, while it is read.
#[derive(Debug)]
pub(crate) struct MemberNames {
    within: &'static str,
    names: &'static [&'static str],
    /// A bit for each name that was found.
    seen: u64,
}

impl MemberNames {
    /// `within` is the path of the object in errors, with a trailing dot, or empty.
    pub(crate) fn new(within: &'static str, names: &'static [&'static str]) -> Self {
        debug_assert!(names.len() <= 64, "one bit each");
        MemberNames { within, names, seen: 0 }
    }

    /// Returns the known name that the member has, or `""`.
    ///
    /// # Errors
    /// 400 if the name occurs a second time or in another spelling.
    pub(crate) fn find(&mut self, name: &MemberName<'_>) -> Result<&'static str, JsonError> {
        let written = name.written();
        if let Some((at, known)) =
            self.names.iter().enumerate().find(|(_, known)| known.as_bytes() == written)
        {
            if self.seen & (1 << at) != 0 {
                let field = self.field(known);
                return Err(Error::invalid(&field, format!("`{field}` is set twice.")).into());
            }
            self.seen |= 1 << at;
            return Ok(known);
        }
        let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        if written.iter().all(is_plain) {
            return Ok("");
        }
        let text = name.text();
        match self.names.iter().find(|known| reads_like(&text, known)) {
            None => Ok(""),
            Some(known) => {
                let field = self.field(known);
                let message = format!(
                    "`{field}` must be spelled exactly like this: in this case, without escapes."
                );
                Err(Error::invalid(field, message).into())
            }
        }
    }

    /// Whether some parser could match the member with one of these names.
    pub(crate) fn is_like(name: &MemberName<'_>, names: &[&str]) -> bool {
        let text = name.text();
        names.iter().any(|known| reads_like(&text, known))
    }

    fn field(&self, known: &str) -> String {
        [self.within, known].concat()
    }
}

/// Whether some parser could match the text with that name.
fn reads_like(text: &str, known: &str) -> bool {
    let folded = |letter: char| match letter {
        // Letters that fold to ASCII in Unicode.
        'ſ' => 's',
        '\u{212a}' => 'k',
        'ı' | 'İ' => 'i',
        other => other.to_ascii_lowercase(),
    };
    let read = text
        .chars()
        .take_while(|letter| *letter != '\0')
        .filter(|letter| *letter != '_')
        .map(folded);
    read.eq(known.chars().filter(|letter| *letter != '_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::read_object;

    /// The result of `find` for each member of an object.
    fn found(body: &str) -> Result<Vec<&'static str>, Error> {
        let (mut names, mut found) =
            (MemberNames::new("options.", &["max_tokens", "n", "stream"]), Vec::new());
        read_object(body.as_bytes(), |cursor, name| {
            found.push(names.find(&name)?);
            cursor.pass()
        })?;
        Ok(found)
    }

    #[test]
    fn each_comes_once_in_its_one_spelling() {
        assert_eq!(
            found(r#"{"n":1,"other":2,"max_tokens":3,"other":4,"ns":5}"#).unwrap(),
            ["n", "", "max_tokens", "", ""]
        );
        for (body, field) in [
            (r#"{"n":1,"n":1}"#, "n"),
            (r#"{"N":1}"#, "n"),
            (r#"{"\u006e":1}"#, "n"),
            (r#"{"n\u0000x":1}"#, "n"),
            (r#"{"n\u0000":1,"n":2}"#, "n"),
            (r#"{"MAX_TOKENS":1}"#, "max_tokens"),
            (r#"{"max_token\u0073":1}"#, "max_tokens"),
            (r#"{"max\u005ftokens":1}"#, "max_tokens"),
            (r#"{"maxTokens":1}"#, "max_tokens"),
            (r#"{"Max_Tokens":1}"#, "max_tokens"),
            ("{\"max_to\u{212a}ens\":1}", "max_tokens"),
            ("{\"ſtream\":1}", "stream"),
        ] {
            let error = found(body).unwrap_err();
            assert_eq!(
                (error.status().as_u16(), error.field()),
                (400, Some(&*format!("options.{field}"))),
                "{body}"
            );
            assert!(error.detail().contains(&format!("`options.{field}`")), "{error}");
        }
    }

    #[test]
    fn all_else_passes() {
        let others = concat!(
            r#"{"maxtokens":1,"max-tokens":1,"max_tokens ":1,"streams":1,"no":1,"":1,"\u0000":1,"#,
            r#""$schema":1,"max_tokens_":1,"é":1,"\ud800n":1}"#,
        );
        assert!(found(others).unwrap().iter().all(|name| name.is_empty()));
    }
}
