-- Usage of all users and keys together, under the negative span of its interval; `at` of a day is
-- the day. First that of the rows which are there.
INSERT INTO usage_recent
    SELECT -span, at, '', '', model, alias, recipe, rule, replay,
        sum(requests), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(nano),
        sum(priced), sum(unpriced), sum(errors), sum(took_0), sum(took_1), sum(took_2),
        sum(took_3), sum(took_4), sum(took_5), sum(took_6), sum(took_7), sum(took_8), sum(took_9),
        sum(took_10), sum(took_11), sum(took_12), sum(took_13), sum(first_0), sum(first_1),
        sum(first_2), sum(first_3), sum(first_4), sum(first_5), sum(first_6), sum(first_7),
        sum(first_8), sum(first_9), sum(first_10), sum(first_11), sum(first_12), sum(first_13)
    FROM (SELECT * FROM usage_recent UNION ALL SELECT 86400, usage.* FROM usage) AS of_each
    GROUP BY span, at, model, alias, recipe, rule, replay;
