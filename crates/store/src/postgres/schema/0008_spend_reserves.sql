-- What requests under way have reserved of budgets, by gateway, while another one lacks a part.
CREATE TABLE spend_reserves (
    subject TEXT COLLATE "C" NOT NULL, period BIGINT NOT NULL, holder TEXT COLLATE "C" NOT NULL,
    reserved BIGINT NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (subject, period, holder));
