//! Credentials of the routing document, redacted for readers.

use rerouter_base::secret::is_credential;
use rerouter_document::{TreeEntry, TreeNode, TreeValue, is_by_name};

/// Redacts every credential in plain text. Returns whether there was one.
pub(super) fn redact(root: &mut TreeNode) -> bool {
    let mut redacted = false;
    for provider in below(root, "providers").into_iter().flat_map(entries) {
        for entry in entries(&mut provider.node) {
            match entry.key.as_str() {
                "api_key" => redacted |= redact_value(&mut entry.node),
                "api_keys" => {
                    if let TreeValue::List(keys) = &mut entry.node.value {
                        redacted |= keys.iter_mut().fold(false, |any, key| redact_value(key) | any);
                    }
                }
                "headers" => {
                    let headers = entries(&mut entry.node)
                        .filter(|header| is_credential(&header.key.to_ascii_lowercase()));
                    redacted |=
                        headers.fold(false, |any, header| redact_value(&mut header.node) | any);
                }
                _ => {}
            }
        }
    }
    redacted
}

fn redact_value(node: &mut TreeNode) -> bool {
    let is_plain = !matches!(&node.value, TreeValue::Null)
        && !matches!(&node.value, TreeValue::Text { text, .. } if is_by_name(text));
    if is_plain {
        node.value = TreeValue::Text { text: "[redacted]".to_owned(), plain: false };
    }
    is_plain
}

fn entries(node: &mut TreeNode) -> impl Iterator<Item = &mut TreeEntry> {
    match &mut node.value {
        TreeValue::Map(entries) => entries.iter_mut(),
        _ => [].iter_mut(),
    }
}

fn below<'a>(node: &'a mut TreeNode, key: &str) -> Option<&'a mut TreeNode> {
    entries(node).find(|entry| entry.key == key).map(|entry| &mut entry.node)
}
