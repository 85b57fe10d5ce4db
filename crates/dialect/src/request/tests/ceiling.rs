use super::*;

#[test]
fn what_a_request_can_come_to_at_most() {
    let ceiling = |endpoint, more: &str| {
        let body = format!(r#"{{"model":"m","messages":[],"input":"x"{more}}}"#);
        (read_request(body.as_bytes(), endpoint).unwrap().ceiling, body.len() as u64)
    };
    let chat = |more: &str| ceiling(Endpoint::ChatCompletions, more);
    // A byte of the prompt counts as one token.
    assert_eq!(
        chat(""),
        (Ceiling { prompt: 39, images: 0, is_open: false, answers: 1_024, is_limited: false }, 39)
    );
    let (tools, length) = chat(r#","functions":[{"name":"f"}]"#);
    assert_eq!(tools.prompt, length + 12 + tokens::MOST_TOOL_INSTRUCTIONS);
    for (more, answers) in [
        (r#","max_tokens":5,"max_completion_tokens":7,"n":3"#, 21),
        (r#","max_tokens":5,"max_new_tokens":9,"best_of":4,"n":2"#, 72),
        // Some servers ignore the name. Some read 0 and -1 as no limit.
        (r#","max_completion_tokens":7"#, 1_024),
        (r#","max_completion_tokens":2000"#, 2_000),
        (r#","max_tokens":5,"n_predict":-1"#, 1_024),
        (r#","max_tokens":-1,"max_completion_tokens":7"#, 1_024),
        (r#","max_tokens":0,"n":0"#, 1_024),
        (r#","max_tokens":5,"thinking_budget":100"#, 105),
        (r#","max_tokens":5,"thinking":100"#, 105),
        (r#","max_tokens":5,"reasoning":{"max_tokens":100},"candidate_count":2"#, 210),
        (r#","max_tokens":5,"prediction":{"content":"abc"}"#, 5 + 17),
        (r#","max_tokens":9223372036854775807,"n":9223372036854775807"#, u64::MAX),
    ] {
        let ceiling = chat(more).0;
        assert_eq!(ceiling.answers, answers, "{more}");
        assert_eq!(ceiling.is_limited, answers % 1_024 != 0 && !more.contains("2000"), "{more}");
    }
    assert!(ceiling(Endpoint::Responses, r#","max_output_tokens":5"#).0.is_limited);
    assert!(!ceiling(Endpoint::Responses, r#","max_tokens":5"#).0.is_limited);
    let thinks = r#","max_tokens":50,"thinking":{"type":"enabled","budget_tokens":40}"#;
    assert_eq!(ceiling(Endpoint::Messages, thinks).0.answers, 50);
    assert_eq!(ceiling(Endpoint::Messages, &thinks.replace("40", "90")).0.answers, 90);
    assert_eq!(
        [Endpoint::CountTokens, Endpoint::Embeddings]
            .map(|endpoint| ceiling(endpoint, thinks).0.answers),
        [0, 0]
    );
    let (image, length) = chat("");
    assert_eq!((image.prompt_tokens(1_000, 50), image.prompt_tokens(10, 50), length), (39, 10, 39));
    let open = Ceiling { images: 2, is_open: true, ..image };
    assert_eq!(
        (
            open.prompt_tokens(1_000, 50),
            Ceiling { is_open: false, ..open }.prompt_tokens(1_000, 50)
        ),
        (1_000, 139)
    );
}

#[test]
fn what_cannot_be_seen_is_open() {
    let said = |content: &str| {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{content}]}}]}}"#)
    };
    let item =
        |item: &str| format!(r#"{{"model":"m","input":[{{"role":"user","content":[]}},{item}]}}"#);
    let beside = |more: &str| format!(r#"{{"model":"m",{more}}}"#);
    let (chat, responses, messages) =
        (Endpoint::ChatCompletions, Endpoint::Responses, Endpoint::Messages);
    for (endpoint, body) in [
        (chat, said(r#"{"type":"file","file":{"file_id":"file_1"}}"#)),
        (
            chat,
            said(r#"{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0x"}}"#),
        ),
        (chat, said(r#"{"type":"video_url","video_url":{"url":"https://a.test/b.mp4"}}"#)),
        (chat, said(r#"{"type":"text","text":"x","file_id":"file_1"}"#)),
        (chat, said(r#"{"type":"unheard_of","unheard_of":"x"}"#)),
        (chat, said(r#"{"type":"text","text":"x","video":"https://a.test/b.mp4"}"#)),
        (
            chat,
            said(
                r#"{"type":"image_url","image_url":{"url":"https://a.test/b.png","min_pixels":9}}"#,
            ),
        ),
        (chat, said(r#"{"type":"image_url","image_url":"data:application/pdf;base64,JVBERi0x"}"#)),
        (chat, said(r#"{"type":"file","file":{"file_data":"data:text/plain;base64,JVBERi0x"}}"#)),
        (chat, said(r#"{"type":"input_audio","input_audio":{"data":"https://a.test/b.mp3"}}"#)),
        (chat, r#"{"model":"m","messages":[{"content":"x","images":["iVBORw0KGgo"]}]}"#.to_owned()),
        (chat, beside(r#""input":[{"role":"user","content":"x"}]"#)),
        (chat, beside(r#""chat_template":"{% for i in range(99999) %}a{% endfor %}""#)),
        (chat, beside(r#""search_parameters":{"mode":"on"}"#)),
        (chat, beside(r#""enable_search":true"#)),
        (chat, beside(r#""web_search_options":{}"#)),
        (chat, beside(r#""tools":[{"type":"web_search"}]"#)),
        (chat, beside(r#""tools":["web_search"]"#)),
        (chat, beside(r#""tools":{"type":"web_search"}"#)),
        (chat, beside(r#""tools":[{"google_search":{}}]"#)),
        (chat, beside(r#""plugins":[{"id":"web"}]"#)),
        (responses, beside(r#""tools":[{"type":"file_search"}]"#)),
        (responses, item(r#"{"type":"reasoning","id":"rs_1","summary":[]}"#)),
        (responses, item(r#"{"type":"file_search_call","id":"fs_1"}"#)),
        (messages, beside(r#""mcp_servers":[{"url":"https://a.test"}]"#)),
        (messages, beside(r#""tools":[{"type":"web_search_20260209","name":"web_search"}]"#)),
        (messages, said(r#"{"type":"text","text":"x","source":{"type":"file","file_id":"f"}}"#)),
        (
            chat,
            r#"{"model":"m","messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}"#
                .to_owned(),
        ),
        (responses, beside(r#""previous_response_id":"resp_1""#)),
        (responses, beside(r#""conversation":{"id":"conv_1"}"#)),
        (responses, beside(r#""prompt":{"id":"pmpt_1"}"#)),
        (responses, item(r#"{"type":"item_reference","id":"msg_1"}"#)),
        (responses, item(r#"{"id":"msg_1"}"#)),
        (
            responses,
            item(concat!(
                r#"{"role":"user","content":[{"type":"input_file","#,
                r#""file_url":"https://a.test/b.pdf"}]}"#,
            )),
        ),
        (
            messages,
            said(r#"{"type":"document","source":{"type":"url","url":"https://a.test/b.pdf"}}"#),
        ),
        (
            messages,
            said(concat!(
                r#"{"type":"document","source":{"type":"base64","#,
                r#""media_type":"application/pdf","data":"JVBERi0x"}}"#,
            )),
        ),
        (messages, said(r#"{"type":"container_upload","file_id":"file_1"}"#)),
        (
            Endpoint::Embeddings,
            r#"{"model":"m","input":[{"image":"https://a.test/b.png"}]}"#.to_owned(),
        ),
    ] {
        assert!(read_request(body.as_bytes(), endpoint).unwrap().ceiling.is_open, "{body}");
    }
    for (endpoint, body) in [
        (chat, said(r#"{"type":"text","text":"x"},{"type":"refusal","refusal":"x"},"x""#)),
        (
            chat,
            said(concat!(
                r#"{"type":"image_url","image_url":{"url":"https://a.test/b.png"}},"#,
                r#"{"type":"input_audio","input_audio":{"data":"AAAA"}}"#,
            )),
        ),
        (
            chat,
            beside(concat!(
                r#""tools":[{"type":"function","function":{}},{"type":"custom"}],"#,
                r#""conversation":null,"plugins":[],"enable_search":false"#,
            )),
        ),
        (
            responses,
            item(concat!(
                r#"{"type":"function_call_output","output":[{"type":"input_image","#,
                r#""file_id":"file_1"}]},{"type":"reasoning","summary":[],"#,
                r#""encrypted_content":"x"}"#,
            )),
        ),
        (
            responses,
            item(concat!(
                r#"{"type":"computer_call_output","output":{"type":"computer_screenshot","#,
                r#""image_url":"https://a.test/s.png"}},{"type":"local_shell_call"}"#,
            )),
        ),
        (
            messages,
            said(concat!(
                r#"{"type":"document","source":{"type":"text","data":"x"}},{"type":"image","#,
                r#""source":{"type":"url","url":"https://a.test/b.png"}}"#,
            )),
        ),
        (
            messages,
            said(concat!(
                r#"{"type":"tool_result","content":[{"type":"text","text":"x"}]},"#,
                r#"{"type":"thinking","thinking":"x"}"#,
            )),
        ),
        (
            messages,
            beside(concat!(
                r#""tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","#,
                r#""name":"bash"}]"#,
            )),
        ),
    ] {
        let ceiling = read_request(body.as_bytes(), endpoint).unwrap().ceiling;
        assert!(!ceiling.is_open && ceiling.prompt < 2_000, "{body}");
    }
}
