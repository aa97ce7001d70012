/* test_guide.c - languages, what they accept and refuse, and the tokens they allow. */
#include "test.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/file.h"
#include "guide/guide.h"
#include "guide/tools.h"
#include "tok_make.h"

typedef bool reader(struct grammar *g, const char *text, size_t n, gram_expr *root,
                    slm_error *err);

/* A vocabulary of all bytes, some longer tokens, two of control and the end. */
static struct made made;
static struct guide_vocab *tokens;
static int32_t end_id;

static int set_up(void **state)
{
    static const char *const words[] = {
        "ab", "abc", "\": \"", "{\"", "\"}", "true", "},{", "00",
        /* Characters of several bytes, whole and cut off; and what is no UTF-8. */
        "\xC3\xA4\xC3\xB6", "\xE2\x82", "a\xE2\x82", "\x82\xAC", "\x82\xACz", "\xF0\x9F\x98",
        "b\xF0\x9F\x98\x80", "a\x80", "\xED\xA0", "\xC0\x80", "zz\x80", "a\xC3\xA4\xC3",
        /* What leads out of a string behind what does not, and back into it. */
        "ab\"", "ab\", \"", "a\\nb", "a\\", "abc def", "aB", "a1", "a\n", "a\tb", "don't", "mob",
        /* As long as GUIDE_NEAR, nearly so, and longer. */
        "aaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaa\"", "aaaaaaaaaaaaaaaaaaaaaa\"",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
        "000000000000000000000000000000", "                              ",
    };

    (void)state;
    made = (struct made){ .model = "llama" };
    add_token(&made, "<unk>", 2, 0);
    add_token(&made, "<s>", 3, 0);
    end_id = add_token(&made, "</s>", 3, 0);
    add_bytes(&made);
    for (size_t i = 0; i < COUNT(words); i++) {
        add_token(&made, words[i], 1, 0);
    }
    add_token(&made, "[CALL]", 3, 0);
    open_made(&made);
    slm_error err = {0};
    tokens = guide_vocab_new(made.v, &err);
    return tokens ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    guide_vocab_free(tokens);
    close_made(&made);
    return 0;
}

static bool read_json(struct grammar *g, const char *text, size_t n, gram_expr *root,
                      slm_error *err)
{
    (void)text;
    (void)n;
    return guide_json(g, root, err);
}

static struct guide *make_n(reader *read, const char *text, size_t n, slm_error *err)
{
    struct grammar g;
    gram_expr root = GRAM_NONE;

    gram_init(&g);
    if (!read(&g, text, n, &root, err)) {
        gram_deinit(&g);
        return NULL;
    }
    return guide_new(tokens, &g, root, err);
}

static struct guide *make(reader *read, const char *text)
{
    slm_error err = {0};
    struct guide *guide = make_n(read, text, strlen(text), &err);

    if (!guide) {
        print_error("%s: %s\n", text, err.msg);
        fail();
    }
    return guide;
}

static bool accepts(struct guide *guide, const char *text)
{
    slm_error err = {0};
    bool yes = false;

    CHECK(guide_accepts(guide, text, strlen(text), &yes, &err));
    return yes;
}

/* Texts separated by "|~|", all of them or none of the language. */
static void check_texts(struct guide *guide, const char *language, const char *list, bool want)
{
    while (list) {
        const char *next = strstr(list, "|~|");
        char text[400];
        snprintf(text, sizeof text, "%.*s", next ? (int)(next - list) : (int)strlen(list), list);
        if (accepts(guide, text) != want) {
            print_error("%s should %s %s\n", language, want ? "accept" : "reject", text);
            fail();
        }
        list = next ? next + 3 : NULL;
    }
}

static void check_language(reader *read, const char *language, const char *good, const char *bad)
{
    struct guide *guide = make(read, language);

    check_texts(guide, language, good, true);
    check_texts(guide, language, bad, false);
    guide_free(guide);
}

/* The language is refused with a message that says so. */
static void check_refused(reader *read, const char *language, const char *what)
{
    slm_error err = {0};
    struct guide *guide = make_n(read, language, strlen(language), &err);

    if (guide || !strstr(err.msg, what)) {
        print_error("%.200s: \"%s\", expected \"%s\"\n", language, guide ? "accepted" : err.msg,
                    what);
        fail();
    }
}

/* ---- JSON schema ------------------------------------------------------------------------ */

static const struct { const char *schema, *good, *bad; } schema_cases[] = {
    { "true", "1|~|\"x\"|~|{\"a\": [null]}|~|[ ]|~|-0.5e+9", "|~|tru|~|01|~|1.|~|[1,]|~|{\"a\"}|~|\"\n\"" },
    { "{\"type\":\"string\"}", "\"\"|~|\"\\u00e4\\ud83d\\uDE00\\n\"|~|\"\xC3\xA4\"",
      "\"\\ud83d\"|~|\"\\x\"|~|\"\t\"|~|'a'|~|\"\xC3\"|~|\"\xFF\"|~|\"\xED\xA0\x80\"|~|\"\\u0000\"|~|1" },
    { "{\"type\":\"null\"}", "null", "nul|~|0|~|\"null\"" },
    { "{\"type\":\"boolean\"}", "true|~|false", "null|~|True|~|1" },
    { "{\"type\":\"integer\"}", "0|~|-1|~|123456789012345678", "1.0|~|+1|~|1e3|~|00|~|-|~|1234567890123456789" },
    { "{\"type\":\"number\"}", "0|~|-1.5|~|1E5|~|0.001", ".5|~|1.|~|1e|~|NaN|~|1e999" },
    { "{\"type\":[\"integer\",\"null\"]}", "5|~|null", "\"5\"|~|true" },
    { "{\"type\":\"string\",\"nullable\":true}", "\"a\"|~|null", "1" },
    { "{\"const\":\"a\\\"\\n\"}", "\"a\\\"\\n\"", "\"a\"|~|\"a\\\"\"" },
    { "{\"const\":{\"a\":[1,{}]}}", "{\"a\":[1,{}]}|~|{ \"a\": [ 1, { } ] }", "{}|~|{\"a\":[1]}" },
    { "{\"enum\":[\"x\",1,null]}", "\"x\"|~|1|~|null", "\"y\"|~|2|~|1.0" },
    { "{\"enum\":[1,2,\"a\"],\"type\":\"string\"}", "\"a\"", "1|~|2" },
    { "{\"enum\":[\"a\",\"bcd\"],\"minLength\":2}", "\"bcd\"", "\"a\"" },
    { "{\"enum\":[1,5,9],\"maximum\":6,\"const\":5}", "5", "1|~|9" },
    { "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"ab\"|~|\"\xC3\xA4\\n\xE2\x82\xAC\"|~|\"\\ud83d\\ude00x\"",
      "\"a\"|~|\"abcd\"|~|\"\"" },
    { "{\"type\":\"string\",\"pattern\":\"^a.c$\"}", "\"abc\"|~|\"a\\\"c\"", "\"ac\"|~|\"abcd\"|~|\"a\\nc\"" },
    { "{\"type\":\"string\",\"pattern\":\"b+\"}", "\"abba\"|~|\"b\"", "\"aa\"|~|\"\"" },
    { "{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":3}", "\"abc\"", "\"abcd\"|~|\"\"" },
    { "{\"type\":\"string\",\"pattern\":\"^\\\\p{L}+$\"}", "\"a\xC3\xA4\xE4\xB8\xAD\"", "\"a1\"|~|\"\"" },
    { "{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"|~|\"1999-12-31\"|~|\"2000-02-29\"",
      "\"2023-02-29\"|~|\"1900-02-29\"|~|\"2024-04-31\"|~|\"2024-13-01\"|~|\"0000-01-01\"" },
    { "{\"type\":\"string\",\"format\":\"time\"}", "\"23:59:59Z\"|~|\"00:00:00.5+01:30\"", "\"24:00:00Z\"|~|\"12:00\"" },
    { "{\"type\":\"string\",\"format\":\"date-time\"}", "\"2024-02-29T12:00:00Z\"", "\"2024-02-29 12:00:00Z\"" },
    { "{\"type\":\"string\",\"format\":\"duration\"}", "\"P1Y2M\"|~|\"PT5S\"|~|\"P3W\"", "\"P\"|~|\"PT\"|~|\"P1S\"" },
    { "{\"type\":\"string\",\"format\":\"uuid\"}", "\"123e4567-e89b-12d3-a456-426614174000\"", "\"123e4567\"" },
    { "{\"type\":\"string\",\"format\":\"email\"}", "\"a.b@c.org\"", "\"a@b\"|~|\"@c.org\"|~|\"a..b@c.org\"" },
    { "{\"type\":\"string\",\"format\":\"hostname\"}", "\"a-b.c\"", "\"-a\"|~|\"a..b\"" },
    { "{\"type\":\"string\",\"format\":\"ipv4\"}", "\"192.168.0.255\"", "\"256.0.0.1\"|~|\"1.2.3\"|~|\"01.2.3.4\"" },
    { "{\"type\":\"string\",\"format\":\"ipv6\"}", "\"::1\"|~|\"fe80::1:2\"|~|\"1:2:3:4:5:6:7:8\"", "\"1:2\"|~|\"1::2::3\"" },
    { "{\"type\":\"string\",\"format\":\"uri\"}", "\"https://a.b/c?d=e#f\"", "\"a b\"|~|\"//x\"" },
    { "{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12}", "-3|~|0|~|9|~|10|~|12", "-4|~|13|~|-10|~|007|~|-0" },
    { "{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":100}", "1|~|99", "0|~|100" },
    { "{\"type\":\"integer\",\"minimum\":5,\"exclusiveMinimum\":true}", "6", "5" },
    { "{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}", "1|~|2", "0|~|3" },
    { "{\"type\":\"integer\",\"multipleOf\":12}", "0|~|144|~|-12", "1|~|143" },
    { "{\"type\":\"integer\",\"multipleOf\":1000,\"minimum\":-2500,\"maximum\":3000}", "-2000|~|0|~|3000", "-3000|~|500" },
    { "{\"type\":\"integer\",\"format\":\"int32\"}", "2147483647|~|-2147483648", "2147483648" },
    { "{\"type\":\"number\",\"minimum\":0.25,\"maximum\":1}", "0.25|~|0.3|~|1|~|1.0|~|0.999", "0.2|~|0.24|~|1.01|~|0|~|-1|~|2" },
    { "{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}", "0.1|~|0.001|~|0.99", "0|~|0.0|~|1|~|1.0" },
    { "{\"type\":\"number\",\"minimum\":-12.5,\"maximum\":-3}", "-12.5|~|-12.49|~|-3|~|-3.0|~|-10", "-12.51|~|-2.9|~|3|~|0" },
    { "{\"type\":\"number\",\"minimum\":1e-3}", "0.001|~|5|~|123456.75", "0.0009|~|0" },
    { "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}", "[1]|~|[ 1, 2 ]|~|[1,2,3]", "[]|~|[1,2,3,4]|~|[\"a\"]" },
    { "{\"type\":\"array\",\"maxItems\":0}", "[]", "[1]" },
    { "{\"type\":\"array\",\"uniqueItems\":false}", "[1,1]|~|[]", "{}" },
    { "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},\"minItems\":1}",
      "[1]|~|[1,2]|~|[1,2,3,3]", "[]|~|[2]|~|[1,3]" },
    { "{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":false}", "[]|~|[1]", "[1,1]" },
    { "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"required\":[\"b\"]}",
      "{\"b\":2}|~|{\"a\": 1, \"b\": 2}|~|{\n  \"a\": 1,\n  \"b\": 2\n}", "{}|~|{\"a\":1}|~|{\"b\":2,\"a\":1}|~|{\"b\":2,\"c\":3}|~|{\"a\":1,}" },
    { "{\"type\":\"object\",\"properties\":{\"ab\":{\"const\":1}},\"additionalProperties\":{\"type\":\"null\"}}",
      "{}|~|{\"ab\":1}|~|{\"ab\":1,\"c\":null}|~|{\"a\":null,\"abc\":null,\"\":null}", "{\"ab\":null}|~|{\"c\":1}|~|{\"c\":null,\"ab\":null}" },
    { "{\"type\":\"object\",\"additionalProperties\":false}", "{}", "{\"a\":1}" },
    { "{\"type\":\"object\",\"required\":[\"x\"],\"additionalProperties\":{\"const\":0}}", "{\"x\":0}|~|{\"x\":0,\"y\":0}", "{}|~|{\"x\":1}" },
    { "{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"integer\"}},\"additionalProperties\":false}",
      "{}|~|{\"n1\":1,\"n2\":2}", "{\"m\":1}|~|{\"n\":\"a\"}" },
    { "{\"type\":\"object\",\"propertyNames\":{\"minLength\":2}}", "{}|~|{\"ab\":1}", "{\"a\":1}" },
    { "{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":1},\"c\":{\"const\":1}},\"minProperties\":1,\"maxProperties\":2}",
      "{\"a\":1}|~|{\"b\":1,\"c\":1}", "{}|~|{\"a\":1,\"b\":1,\"c\":1}" },
    { "{\"anyOf\":[{\"const\":1},{\"type\":\"string\"}]}", "1|~|\"x\"", "2|~|null" },
    { "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
      "{\"a\":1}|~|{\"b\":2}|~|{\"a\":1,\"b\":2}", "{}" },
    { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "1|~|null", "\"a\"" },
    { "{\"allOf\":[{\"minimum\":3,\"type\":\"integer\"},{\"maximum\":4}]}", "3|~|4", "2|~|5" },
    { "{\"allOf\":[{\"type\":[\"string\",\"null\"]},{\"type\":[\"null\",\"integer\"]}]}", "null", "1|~|\"\"" },
    { "{\"$ref\":\"#/$defs/l\",\"$defs\":{\"l\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/l\"}}]}}}",
      "null|~|[]|~|[null,[[null]]]", "1|~|[1]" },
    { "{\"$ref\":\"#/$defs/i\",\"minimum\":2,\"$defs\":{\"i\":{\"type\":\"integer\",\"maximum\":3}}}", "2|~|3", "1|~|4" },
    { "{\"$id\":\"urn:x\",\"$ref\":\"urn:x#a\",\"$defs\":{\"q\":{\"$anchor\":\"a\",\"const\":7}}}", "7", "8" },
    { "{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#\"}}}", "{}|~|{\"next\":{\"next\":{}}}", "{\"next\":1}" },
};

TEST(schema_keywords_accept_and_reject)
{
    for (size_t i = 0; i < COUNT(schema_cases); i++) {
        check_language(guide_schema, schema_cases[i].schema, schema_cases[i].good,
                       schema_cases[i].bad);
    }
}

TEST(schema_refuses_with_a_pointer)
{
    static const char *const cases[][2] = {
        { "{\"type\":\"strnig\"}", "schema at \"/type\"" },
        { "{\"$ref\":\"#/$defs/none\"}", "schema at \"/$ref\"" },
        { "{\"$ref\":\"http://x/y\"}", "only references inside" },
        { "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}", "empty" },
        { "{\"$ref\":\"#/$defs/a\",\"minimum\":1,\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}", "back to itself" },
        { "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "begins with itself" },
        { "{\"not\":{}}", "schema at \"/not\"" },
        { "{\"properties\":{\"a/b\":{\"items\":{\"contains\":{}}}}}", "\"/properties/a~1b/items/contains\"" },
        { "{\"if\":{},\"then\":{}}", "/if" },
        { "{\"type\":\"array\",\"uniqueItems\":true}", "/uniqueItems" },
        { "{\"format\":\"color\"}", "/format" },
        { "{\"pattern\":\"(?=a)\"}", "/pattern" },
        { "{\"pattern\":\"a\\\\1\"}", "/pattern" },
        { "{\"pattern\":\"^(ab)*$\",\"maxLength\":5}", "/pattern" },
        { "{\"pattern\":\"a\",\"format\":\"date\"}", "/pattern" },
        { "{\"type\":\"number\",\"multipleOf\":0.1}", "/multipleOf" },
        { "{\"type\":\"integer\",\"multipleOf\":1001}", "/multipleOf" },
        { "{\"minLength\":-1}", "/minLength" },
        { "{\"maxItems\":\"3\"}", "/maxItems" },
        { "{\"minimum\":\"3\"}", "/minimum" },
        { "{\"enum\":3}", "/enum" },
        { "{\"anyOf\":[]}", "/anyOf" },
        { "{\"allOf\":3}", "/allOf" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "/oneOf" },
        { "{\"properties\":{\"a\":3}}", "schema at \"/properties/a\"" },
        { "{\"properties\":[]}", "/properties" },
        { "{\"required\":\"a\"}", "/required" },
        { "{\"required\":[1]}", "/required" },
        { "{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "/allOf/1/pattern" },
        { "{\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":3}", "/minProperties" },
        { "[1]", "must be an object" },
        { "{\"a\":", "no valid JSON" },
        { "{\"type\":\"null\",\"type\":\"null\"}", "no valid JSON" },
        { "false", "empty" },
        { "{\"enum\":[]}", "empty" },
        { "{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "empty" },
        { "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "empty" },
        { "{\"required\":[\"a\"],\"additionalProperties\":false}", "empty" },
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "empty" },
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        check_refused(guide_schema, cases[i][0], cases[i][1]);
    }
}

/* ---- the other languages ------------------------------------------------------------------- */

TEST(regular_expressions_match_the_whole_answer)
{
    static const char *const cases[][3] = {
        { "abc", "abc", "ab|~|abcd|~|" },
        { "^a|bc$", "a|~|bc", "b|~|abc" },
        { "a*b+c?", "b|~|aabbc", "a|~|ac|~|bcc" },
        { "(ab){2,3}", "abab|~|ababab", "ab|~|abababab" },
        { "(a?){3}b", "b|~|aaab", "aaaab" },
        { "x{0}y", "y", "xy" },
        { "[a-c\\-\\]^]", "a|~|-|~|]|~|^", "d|~|\\" },
        { "[^a-c]", "d|~|\xE2\x82\xAC", "a|~|dd|~|" },
        { "\\d\\w\\s\\D", "1_ x", "a_ x|~|1_ 1" },
        { ".", "a|~|\xF0\x9F\x98\x80", "\n|~|ab" },
        { "\\x41\\u00e4\\u{1F600}\\uD83D\\uDE00\\/\\.", "A\xC3\xA4\xF0\x9F\x98\x80\xF0\x9F\x98\x80/.", "A" },
        { "(?:a|(?<n>b))*?c", "c|~|abc", "ab" },
        { "a{2,}", "aa|~|aaaa", "a" },
        { "[\\p{L}\\d]+", "a1\xC3\xA4", "_|~|" },
        { "", "", "a" },
        { "(|a)b", "b|~|ab", "a" },
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        check_language(guide_regex, cases[i][0], cases[i][1], cases[i][2]);
    }
    static const char *const bad[][2] = {
        { "(a", "group" }, { "a)", "group" }, { "[a", "bracket" }, { "[]", "bracket" },
        { "a**", "repetition" }, { "*a", "repetition" }, { "a{2,1}", "repetition" },
        { "(?!a)", "looks around" }, { "\\b", "boundary" }, { "(a)\\1", "reference" },
        { "(?i)a", "flags" }, { "[b-a]", "range" }, { "\\", "backslash" }, { "\\xZ", "hexadecimal" },
        { "\\uD800", "surrogate" }, { "\\p{Greek}", "property" }, { "(^a)", "anchor" },
        { "\xFF", "UTF-8" }, { "[^\\s\\S]", "inverted" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        check_refused(guide_regex, bad[i][0], bad[i][1]);
    }
}

TEST(grammars_are_read)
{
    static const char *const cases[][3] = {
        { "root ::= \"a\" root \"b\" | \"x\"", "x|~|axb|~|aaxbb", "ab|~|axbb|~|" },
        { "# comment\nroot ::= item (\",\" item)* # list\nitem ::= [0-9]+\n", "1|~|12,3", ",|~|1," },
        { "root ::= (\n  \"a\" |\n  \"b\"\n)\n  | \"c\"\nx ::= \"y\"", "a|~|b|~|c", "y" },
        { "root ::= [^a-z\\n]{2,3} \"\\\"\\x41\\u00e4\"", "AB\"A\xC3\xA4", "ab\"A\xC3\xA4" },
        { "root ::= . .? \"!\"{2}", "a!!|~|\xE2\x82\xAC" "b!!", "!!|~|a!" },
        { "root ::= a b\na ::= \"x\"?\nb ::= a a \"y\"", "y|~|xxxy", "xxxxy" },
        { "root ::= \"\" | \"a\"", "|~|a", "b" },
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        check_language(guide_gbnf, cases[i][0], cases[i][1], cases[i][2]);
    }
    static const char *const bad[][2] = {
        { "", "no rule root" }, { "a ::= \"x\"", "no rule root" }, { "root ::= x", "not defined" },
        { "root ::= \"a", "literal" }, { "root ::= [a", "bracket" }, { "root ::= (\"a\"", "group" },
        { "root ::= \"a\"{3,2}", "repetition" }, { "root ::= \"\\q\"", "escape" },
        { "root ::= \"a\"\nroot ::= \"b\"", "twice" }, { "root ::= root \"a\" | \"b\"", "begins with itself" },
        { "root ::= a\na ::= \"\" b\nb ::= a \"x\" | \"y\"", "begins with itself" },
        { "root ::= \"a\" root", "empty" }, { "root = \"a\"", "line 1" }, { "root ::= \"a\" ]", "line 1" },
        { "root ::= \"a\"\n\n)", "line 3" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        check_refused(guide_gbnf, bad[i][0], bad[i][1]);
    }
}

TEST(choices_and_any_object)
{
    check_language(guide_choices, "[\"yes\",\"no\",\"\\u00e4\"]", "yes|~|no|~|\xC3\xA4", "y|~|yesno|~|");
    check_refused(guide_choices, "[]", "at least one");
    check_refused(guide_choices, "[1]", "choice 0");
    check_refused(guide_choices, "{", "no valid JSON");
    check_language(read_json, "", "{}|~|{\"a\":{\"b\":[1,{}]}}", "[]|~|1|~|{|~|");
}

/* ---- tool calls ------------------------------------------------------------------------------- */

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"a\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"}},\"required\":[\"a\"]}}},"
    "{\"name\":\"now\"}]";

static struct guide *make_tools_of(const char *template, const char *list, const char *choice,
                                   bool parallel, slm_error *err)
{
    const struct tool_form *form = tool_form_find(template, strlen(template));
    const struct tools_opts o = { choice, parallel };
    json_t *tools = json_loads(list, 0, NULL);
    struct grammar g;
    gram_expr root = GRAM_NONE;
    struct guide *guide = NULL;

    CHECK(form != NULL);
    gram_init(&g);
    if (guide_tools(&g, tokens, form, tools, &o, &root, err)) {
        guide = guide_new(tokens, &g, root, err);
    } else {
        gram_deinit(&g);
    }
    json_decref(tools);
    return guide;
}

static struct guide *make_tools(const char *template, const char *choice, bool parallel,
                                slm_error *err)
{
    return make_tools_of(template, tools_json, choice, parallel, err);
}

/* What the forms that are no JSON can say, and what they refuse. */
TEST(calls_in_gemmas_form_have_typed_values)
{
    static const char form[] = "<|tool_call>call:";
    static const struct { const char *properties, *good, *bad; } cases[] = {
        { "\"o\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\"},"
          "\"y\":{\"type\":\"boolean\"},\"z\":{\"type\":\"null\"}},\"required\":[\"y\"]}",
          "{}|~|{o:{y:true}}|~|{o:{x:1.5,y:false,z:null}}|~|{o:{y:true,z:null}}",
          "{o:{}}|~|{o:{x:1}}|~|{o:{,y:true}}|~|{o:{z:null,y:true}}" },
        { "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"enum\":[\"a\",\"b c\"]}}",
          "{}|~|{l:[]}|~|{l:[<|\"|>a<|\"|>,<|\"|>b c<|\"|>]}", "{l:[a]}|~|{l:[,]}|~|{l:[<|\"|>c<|\"|>]}" },
        { "\"s\":{\"type\":\"string\",\"maxLength\":3}", NULL, "\"s\"" },
        { "\"l\":{\"type\":\"array\"}", NULL, "\"l\"" },
        { "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1}", NULL, "\"l\"" },
        { "\"u\":{\"type\":[\"string\",\"null\"]}", NULL, "\"u\"" },
        { "\"o\":{\"type\":\"object\",\"required\":[\"p\"]}", NULL, "\"o\"" },
        { "\"a:b\":{\"type\":\"null\"}", NULL, "\"a:b\"" },
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        char list[600];
        slm_error err = {0};
        snprintf(list, sizeof list, "[{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                 "\"properties\":{%s}}}]", cases[i].properties);
        struct guide *guide = make_tools_of(form, list, "required", false, &err);
        CHECK_EQ(guide != NULL, cases[i].good != NULL);
        if (!guide) {
            CHECK(strstr(err.msg, cases[i].bad) != NULL);
            continue;
        }
        for (int bad = 0; bad < 2; bad++) {
            for (const char *at = bad ? cases[i].bad : cases[i].good; at;) {
                const char *next = strstr(at, "|~|");
                char text[200];
                snprintf(text, sizeof text, "<|tool_call>call:f%.*s<tool_call|>",
                         next ? (int)(next - at) : (int)strlen(at), at);
                check_texts(guide, form, text, !bad);
                at = next ? next + 3 : NULL;
            }
        }
        guide_free(guide);
    }
}

TEST(tool_calls_follow_form_and_schema)
{
    static const struct { const char *template, *choice; bool parallel; const char *good, *bad; } cases[] = {
        { "<tool_call> \"arguments\"", "required", false,
          "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"s\": \"x\"}}\n</tool_call>"
          "|~|<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
          "hi|~||~|<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>"
          "|~|<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>" },
        { "<tool_call> \"arguments\"", "auto", true,
          "|~|a < b \xC3\xA4 <tool_cal>|~|so: <tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>\n"
          "<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>",
          "<tool_call>|~|a <<tool_call>|~|<tool_call>\n{}\n</tool_call>" },
        { "<tool_call> \"arguments\"", "none", true, "|~|text", "a <tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>" },
        { "<tool_call> \"arguments\"", "now", true, "<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>",
          "<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}\n</tool_call>" },
        { "<tool_call> <function=", "required", false,
          "<tool_call>\n<function=add>\n<parameter=a>\n12\n</parameter>\n<parameter=s>\nx\ny</parameter\n</parameter>\n</function>\n</tool_call>"
          "|~|<tool_call>\n<function=now>\n</function>\n</tool_call>",
          "<tool_call>\n<function=add>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
          "|~|<tool_call>\n<function=add>\n</function>\n</tool_call>" },
        { "[TOOL_CALLS] [ARGS]", "required", true, "[TOOL_CALLS]add[ARGS]{\"a\":1}[TOOL_CALLS]now[ARGS]{}", "[TOOL_CALLS]add[ARGS]{}" },
        { "[TOOL_CALLS] [CALL_ID]", "required", true, "[TOOL_CALLS]now[CALL_ID]abcDEF123[ARGS]{}", "[TOOL_CALLS]now[ARGS]{}" },
        { "[TOOL_CALLS]", "required", true, "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]",
          "[TOOL_CALLS][]" },
        { "<|tool|>", "required", false, "<|tool_call|>[{\"name\":\"now\",\"arguments\":{}}]<|/tool_call|>", "[]" },
        { "<|start_header_id|> \"parameters\": ", "auto", true, "{\"name\": \"add\", \"parameters\": {\"a\": -1}}|~|Hello {}",
          "{\"a\": 1}|~|{\"name\": \"add\", \"parameters\": {}}" },
        { "<|tool_call>call:", "auto", true,
          "|~|text|~|<|tool_call>call:now{}<tool_call|>|~|so <|tool_call>call:add{a:-12}<tool_call|>"
          "|~|<|tool_call>call:add{a:1,s:<|\"|>x \"<|\xC3\xA4<|\"|>}<tool_call|><|tool_call>call:now{}"
          "<tool_call|>",
          "<|tool_call>|~|<|tool_call>call:add{}<tool_call|>|~|<|tool_call>call:add{a:x}<tool_call|>"
          "|~|<|tool_call>call:add{a:1,}<tool_call|>|~|<|tool_call>call:add{a:1,s:x}<tool_call|>"
          "|~|<|tool_call>call:add{a:1,s:<|\"|>x<|\"|>y<|\"|>}<tool_call|>" },
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        slm_error err = {0};
        struct guide *guide = make_tools(cases[i].template, cases[i].choice, cases[i].parallel, &err);
        CHECK_STR(err.msg, "");
        check_texts(guide, cases[i].template, cases[i].good, true);
        check_texts(guide, cases[i].template, cases[i].bad, false);
        guide_free(guide);
    }
    slm_error err = {0};
    CHECK(make_tools("[TOOL_CALLS]", "sub", true, &err) == NULL);
    CHECK(strstr(err.msg, "\"sub\"") != NULL);
}

/* ---- hostile input ---------------------------------------------------------------------------- */

static void repeat(struct buf *b, const char *text, int n)
{
    for (int i = 0; i < n; i++) {
        buf_puts(b, text);
    }
}

/* Either refused or made; with a first set of tokens. */
static void check_survives(reader *read, const char *text)
{
    slm_error err = {0};
    struct guide *guide = make_n(read, text, strlen(text), &err);

    CHECK(guide || err.msg[0]);
    if (guide) {
        uint64_t bits[16];
        struct guide_matcher *m = guide_matcher_new(guide, &err);
        CHECK(guide_allow(m, NULL, 0, bits, &err) || err.msg[0]);
        guide_matcher_free(m);
    }
    guide_free(guide);
}

TEST(hostile_languages_end)
{
    static const struct { reader *read; const char *before, *middle, *core, *close, *after; int n; } nested[] = {
        { guide_schema, "", "{\"items\":", "{}", "}", "", 1000 },
        { guide_schema, "", "{\"items\":", "{}", "}", "", 5000 },
        { guide_schema, "", "{\"anyOf\":[", "{}", "]}", "", 90 },
        { guide_schema, "", "[", "", "]", "", 3000 },
        { guide_schema, "{\"const\":", "[", "", "]", "}", 1500 },
        { guide_regex, "", "(", "a", ")", "", 100000 },
        { guide_regex, "", "(", "a", "){0,9999}", "", 150 },
        { guide_regex, "", "(a?", "", "){0,99}", "", 150 },
        { guide_regex, "", "(a|a", "", ")", "b", 150 },
        { guide_regex, "[", "\\W", "", "", "]", 5000 },
        { guide_gbnf, "root ::= ", "(", "\"a\"", ")", "", 100000 },
        { guide_gbnf, "root ::= ", "(\"a\"? ", "", ")*", "", 150 },
    };
    for (size_t i = 0; i < COUNT(nested); i++) {
        struct buf b;
        buf_init(&b, 0);
        buf_puts(&b, nested[i].before);
        repeat(&b, nested[i].middle, nested[i].n);
        buf_puts(&b, nested[i].core);
        repeat(&b, nested[i].close, nested[i].n);
        buf_puts(&b, nested[i].after);
        check_survives(nested[i].read, buf_str(&b));
        buf_deinit(&b);
    }
    check_survives(guide_regex, "a{1000000000}");
    check_survives(guide_regex, "(.{0,1000000000}){1000000000}");
    check_survives(guide_regex, "(a?){1000000000}b");
    check_survives(guide_regex, "((a{0,1000}){0,1000}){0,1000}");
    check_survives(guide_regex, ".*a.{1000}b.*");
    check_survives(guide_schema, "{\"minLength\":1000000000,\"maxLength\":99999999999}");
    check_survives(guide_schema, "{\"minItems\":1000000000}");
    check_survives(guide_schema, "{\"minimum\":-1e300,\"maximum\":1e300}");
}

/* Definitions of which each uses the one before twice. */
TEST(exponential_languages_end)
{
    struct buf schema, grammar;

    buf_init(&schema, 0);
    buf_init(&grammar, 0);
    buf_puts(&schema, "{\"$ref\":\"#/$defs/d40\",\"$defs\":{\"d0\":{\"type\":\"object\"}");
    buf_puts(&grammar, "root ::= a40\na0 ::= \"x\"\n");
    for (int i = 1; i <= 40; i++) {
        buf_printf(&schema, ",\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}",
                   i, i - 1, i - 1);
        buf_printf(&grammar, "a%d ::= a%d \"p\" | a%d \"q\" | a%d a%d\n", i, i - 1, i - 1, i - 1, i - 1);
    }
    buf_puts(&schema, "}}");
    check_survives(guide_schema, buf_str(&schema));
    check_survives(guide_gbnf, buf_str(&grammar));
    buf_deinit(&schema);
    buf_deinit(&grammar);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static bool has(const uint64_t *bits, int32_t id)
{
    return bits[id / 64] >> id % 64 & 1;
}

/* Every token by reading its bytes; what guide_allow must say. */
static void check_mask(struct guide *guide, struct guide_matcher *m, const int32_t *ids, size_t n)
{
    slm_error err = {0};
    uint64_t bits[16];
    struct buf text;

    CHECK(guide_allow(m, ids, n, bits, &err));
    buf_init(&text, 0);
    CHECK(vocab_detokenize(made.v, ids, n, false, &text, &err));
    for (int32_t id = 0; id < vocab_size(made.v); id++) {
        /* A beginning of the language is what can be completed: the matcher of a longer answer
         * then says so. */
        int32_t longer[300];
        memcpy(longer, ids, n * sizeof *ids);
        longer[n] = id;
        struct guide_matcher *other = guide_matcher_new(guide, &err);
        uint64_t next[16];
        const bool possible = guide_allow(other, longer, n + 1, next, &err);
        if (possible != has(bits, id)) {
            print_error("token %d after \"%s\"\n", (int)id, buf_str(&text));
            fail();
        }
        guide_matcher_free(other);
    }
    buf_deinit(&text);
}

/* Walks at random; the masks are right, and what comes out is of the language. */
TEST(masks_are_exact_and_walks_are_valid)
{
    static const struct { reader *read; const char *text; } cases[] = {
        { guide_schema, "{\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":300},\"b\":{\"type\":\"number\",\"minimum\":1}},\"required\":[\"b\"]}" },
        { guide_schema, "{\"type\":\"array\",\"items\":{\"enum\":[true,\"abc\",\"ab\"]},\"maxItems\":4}" },
        { guide_regex, "(abc|ab)*[^a]{2,400}(\xC3\xA4|00)+" },
        { guide_gbnf, "root ::= \"{\" root \"}\" | \"ab\"{2,70} | [0-9]*" },
        { read_json, "" },
        { guide_schema, "{\"type\":\"string\"}" },
        { guide_schema, "{\"type\":\"string\",\"minLength\":60,\"maxLength\":90}" },
        { guide_regex, "(.|\n)*" },
        { guide_regex, "[a-m ]*0{2}" },
        { guide_regex, "([a-z ]|\xC3\xA4)*0{20,60}" },
        { guide_regex, "([^b]|\n){0,40}(a\xE2\x82\xAC|b)?" },
    };

    for (size_t c = 0; c < COUNT(cases); c++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct guide *guide = make(cases[c].read, cases[c].text);
            slm_error err = {0};
            struct guide_matcher *m = guide_matcher_new(guide, &err);
            struct rng r = { seed * 100 };
            int32_t ids[300];
            size_t n = 0;
            bool complete = false;
            while (n < 290) {
                uint64_t bits[16];
                int32_t id = -1;
                CHECK(guide_allow(m, ids, n, bits, &err));
                if (n % 16 < 2 && seed < 2) {
                    check_mask(guide, m, ids, n);
                }
                if (n < 20) {
                    do {
                        id = (int32_t)(rng_next(&r) % (uint64_t)vocab_size(made.v));
                    } while (!has(bits, id));
                } else {
                    CHECK(guide_shortest(m, ids, n, &id, &err));
                    CHECK(has(bits, id));
                }
                if (id == end_id) {
                    CHECK(guide_complete(m, ids, n, &complete, &err));
                    CHECK(complete);
                    break;
                }
                ids[n++] = id;
            }
            CHECK(complete);
            struct buf text;
            buf_init(&text, 0);
            for (size_t i = 0; i < n; i++) {
                size_t len;
                const char *s = vocab_piece(made.v, ids[i], false, &len);
                buf_add(&text, s, len);
            }
            CHECK(utf8_valid(buf_str(&text), text.len));
            bool belongs = false;
            CHECK(guide_accepts(guide, buf_str(&text), text.len, &belongs, &err) && belongs);
            buf_deinit(&text);
            guide_matcher_free(m);
            guide_free(guide);
        }
    }
}

/* Far from the bounds of a repetition rounds are not counted; here it is about where that begins
 * and ends. */
TEST(masks_are_exact_near_bounds)
{
    static const char *const regexes[] = {
        "\"a{0,26}\"", "\"a{26}\"", "\"a{30,}\"", "\"a{27,52}\"", "\"(aa?){26,28}\"",
    };
    int32_t ids[60], quote = 0, letter = 0;

    for (int32_t id = 0; id < vocab_size(made.v); id++) {
        size_t n;
        const char *s = vocab_piece(made.v, id, false, &n);
        quote = n == 1 && *s == '"' ? id : quote;
        letter = n == 1 && *s == 'a' ? id : letter;
    }
    ids[0] = quote;
    for (size_t i = 1; i < COUNT(ids); i++) {
        ids[i] = letter;
    }
    for (size_t i = 0; i < COUNT(regexes); i++) {
        struct guide *guide = make(guide_regex, regexes[i]);
        slm_error err = {0};
        struct guide_matcher *m = guide_matcher_new(guide, &err);
        uint64_t bits[16];
        for (size_t n = 1; n < COUNT(ids) && guide_allow(m, ids, n, bits, &err); n++) {
            check_mask(guide, m, ids, n);
        }
        guide_matcher_free(m);
        guide_free(guide);
    }
}

/* Drafts are read and taken back: a matcher with any past says what a new one says. */
TEST(matcher_follows_any_history)
{
    struct guide *guide = make(guide_regex, "(ab|c){0,90}(d[0-9]{3})*");
    slm_error err = {0};
    struct guide_matcher *m = guide_matcher_new(guide, &err);
    struct rng r = {7};
    int32_t ids[64];
    size_t n = 0;

    for (int round = 0; round < 400; round++) {
        struct guide_matcher *fresh = guide_matcher_new(guide, &err);
        uint64_t bits[16], expected[16];
        CHECK(guide_allow(m, ids, n, bits, &err));
        CHECK(guide_allow(fresh, ids, n, expected, &err));
        CHECK_MEM(bits, expected, (size_t)(vocab_size(made.v) + 63) / 64 * 8);
        guide_matcher_free(fresh);
        if (n > 0 && rng_next(&r) % 4 == 0) {
            n -= 1 + rng_next(&r) % (n < 5 ? n : 5);
            continue;
        }
        if (n < 60) {
            do {
                ids[n] = (int32_t)(rng_next(&r) % (uint64_t)vocab_size(made.v));
            } while (!has(bits, ids[n]) || ids[n] == end_id);
            n++;
        }
    }
    ids[0] = 0;
    CHECK(!guide_allow(m, ids, 1, (uint64_t[16]){0}, &err));
    CHECK(strstr(err.msg, "does not follow") != NULL);
    guide_matcher_free(m);
    guide_free(guide);
}

TEST(complete_answers_only_end)
{
    struct guide *guide = make(guide_choices, "[\"ab\"]");
    slm_error err = {0};
    struct guide_matcher *m = guide_matcher_new(guide, &err);
    uint64_t bits[16];
    int32_t ids[4] = { 3 + 'a', 3 + 'b', 0, 0 };

    ids[2] = ids[3] = end_id;
    for (size_t n = 0; n <= 4; n++) {
        CHECK(guide_allow(m, ids, n, bits, &err));
        CHECK_EQ(has(bits, end_id), n >= 2);
        CHECK_EQ(has(bits, ids[0]), n == 0);
        int count = 0;
        for (int32_t id = 0; id < vocab_size(made.v); id++) {
            count += has(bits, id);
        }
        CHECK_EQ(count, n == 0 ? 2 : 1);  /* "a" and "ab" at first */
    }
    guide_matcher_free(m);
    guide_free(guide);
}

TEST(failed_allocations_are_errors)
{
    static const struct { reader *read; const char *text; } cases[] = {
        { guide_schema, "{\"properties\":{\"a\":{\"enum\":[1,2,3],\"minimum\":2},\"b\":{\"pattern\":\"[^a]b|c\"}},\"additionalProperties\":true,\"allOf\":[{\"required\":[\"a\"]}]}" },
        { guide_gbnf, "root ::= \"a\" x*\nx ::= [^b] | \"\\n\"" },
        { guide_choices, "[\"a\",\"b\"]" },
    };

    for (size_t c = 0; c < COUNT(cases); c++) {
        long n = 1;
        for (bool done = false; !done; n++) {
            slm_error err = {0};
            uint64_t bits[16];
            mem_fail_after(n);
            struct guide *guide = make_n(cases[c].read, cases[c].text, strlen(cases[c].text), &err);
            struct guide_matcher *m = guide ? guide_matcher_new(guide, &err) : NULL;
            done = m && guide_allow(m, NULL, 0, bits, &err);
            mem_fail_after(0);
            if (!done && err.code != SLM_E_NOMEM) {
                print_error("%s, allocation %ld: %s\n", cases[c].text, n, err.msg);
                fail();
            }
            guide_matcher_free(m);
            guide_free(guide);
        }
        CHECK(n > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(schema_keywords_accept_and_reject), T(schema_refuses_with_a_pointer),
        T(regular_expressions_match_the_whole_answer), T(grammars_are_read),
        T(choices_and_any_object), T(tool_calls_follow_form_and_schema),
        T(calls_in_gemmas_form_have_typed_values), T(hostile_languages_end), T(exponential_languages_end),
        T(masks_are_exact_and_walks_are_valid), T(masks_are_exact_near_bounds),
        T(matcher_follows_any_history),
        T(complete_answers_only_end), T(failed_allocations_are_errors),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
