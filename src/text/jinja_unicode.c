/* jinja_unicode.c - what Python's str knows about characters.
 *
 * Categories and simple case mappings come from utf8proc; the tables hold where Python's
 * answer is not a function of those: mappings to several characters, and properties that
 * are more than a category. */
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja_run.h"
#include "text/jinja_str.h"

struct special { uint32_t cp, to[3]; };
struct range32 { uint32_t first, last; };

static const struct special upper_special[] = {
    { 0xDF, { 0x53, 0x53, 0 } }, { 0x149, { 0x2BC, 0x4E, 0 } }, { 0x1F0, { 0x4A, 0x30C, 0 } },
    { 0x390, { 0x399, 0x308, 0x301 } }, { 0x3B0, { 0x3A5, 0x308, 0x301 } },
    { 0x587, { 0x535, 0x552, 0 } }, { 0x1E96, { 0x48, 0x331, 0 } },
    { 0x1E97, { 0x54, 0x308, 0 } }, { 0x1E98, { 0x57, 0x30A, 0 } },
    { 0x1E99, { 0x59, 0x30A, 0 } }, { 0x1E9A, { 0x41, 0x2BE, 0 } },
    { 0x1F50, { 0x3A5, 0x313, 0 } }, { 0x1F52, { 0x3A5, 0x313, 0x300 } },
    { 0x1F54, { 0x3A5, 0x313, 0x301 } }, { 0x1F56, { 0x3A5, 0x313, 0x342 } },
    { 0x1F80, { 0x1F08, 0x399, 0 } }, { 0x1F81, { 0x1F09, 0x399, 0 } },
    { 0x1F82, { 0x1F0A, 0x399, 0 } }, { 0x1F83, { 0x1F0B, 0x399, 0 } },
    { 0x1F84, { 0x1F0C, 0x399, 0 } }, { 0x1F85, { 0x1F0D, 0x399, 0 } },
    { 0x1F86, { 0x1F0E, 0x399, 0 } }, { 0x1F87, { 0x1F0F, 0x399, 0 } },
    { 0x1F88, { 0x1F08, 0x399, 0 } }, { 0x1F89, { 0x1F09, 0x399, 0 } },
    { 0x1F8A, { 0x1F0A, 0x399, 0 } }, { 0x1F8B, { 0x1F0B, 0x399, 0 } },
    { 0x1F8C, { 0x1F0C, 0x399, 0 } }, { 0x1F8D, { 0x1F0D, 0x399, 0 } },
    { 0x1F8E, { 0x1F0E, 0x399, 0 } }, { 0x1F8F, { 0x1F0F, 0x399, 0 } },
    { 0x1F90, { 0x1F28, 0x399, 0 } }, { 0x1F91, { 0x1F29, 0x399, 0 } },
    { 0x1F92, { 0x1F2A, 0x399, 0 } }, { 0x1F93, { 0x1F2B, 0x399, 0 } },
    { 0x1F94, { 0x1F2C, 0x399, 0 } }, { 0x1F95, { 0x1F2D, 0x399, 0 } },
    { 0x1F96, { 0x1F2E, 0x399, 0 } }, { 0x1F97, { 0x1F2F, 0x399, 0 } },
    { 0x1F98, { 0x1F28, 0x399, 0 } }, { 0x1F99, { 0x1F29, 0x399, 0 } },
    { 0x1F9A, { 0x1F2A, 0x399, 0 } }, { 0x1F9B, { 0x1F2B, 0x399, 0 } },
    { 0x1F9C, { 0x1F2C, 0x399, 0 } }, { 0x1F9D, { 0x1F2D, 0x399, 0 } },
    { 0x1F9E, { 0x1F2E, 0x399, 0 } }, { 0x1F9F, { 0x1F2F, 0x399, 0 } },
    { 0x1FA0, { 0x1F68, 0x399, 0 } }, { 0x1FA1, { 0x1F69, 0x399, 0 } },
    { 0x1FA2, { 0x1F6A, 0x399, 0 } }, { 0x1FA3, { 0x1F6B, 0x399, 0 } },
    { 0x1FA4, { 0x1F6C, 0x399, 0 } }, { 0x1FA5, { 0x1F6D, 0x399, 0 } },
    { 0x1FA6, { 0x1F6E, 0x399, 0 } }, { 0x1FA7, { 0x1F6F, 0x399, 0 } },
    { 0x1FA8, { 0x1F68, 0x399, 0 } }, { 0x1FA9, { 0x1F69, 0x399, 0 } },
    { 0x1FAA, { 0x1F6A, 0x399, 0 } }, { 0x1FAB, { 0x1F6B, 0x399, 0 } },
    { 0x1FAC, { 0x1F6C, 0x399, 0 } }, { 0x1FAD, { 0x1F6D, 0x399, 0 } },
    { 0x1FAE, { 0x1F6E, 0x399, 0 } }, { 0x1FAF, { 0x1F6F, 0x399, 0 } },
    { 0x1FB2, { 0x1FBA, 0x399, 0 } }, { 0x1FB3, { 0x391, 0x399, 0 } },
    { 0x1FB4, { 0x386, 0x399, 0 } }, { 0x1FB6, { 0x391, 0x342, 0 } },
    { 0x1FB7, { 0x391, 0x342, 0x399 } }, { 0x1FBC, { 0x391, 0x399, 0 } },
    { 0x1FC2, { 0x1FCA, 0x399, 0 } }, { 0x1FC3, { 0x397, 0x399, 0 } },
    { 0x1FC4, { 0x389, 0x399, 0 } }, { 0x1FC6, { 0x397, 0x342, 0 } },
    { 0x1FC7, { 0x397, 0x342, 0x399 } }, { 0x1FCC, { 0x397, 0x399, 0 } },
    { 0x1FD2, { 0x399, 0x308, 0x300 } }, { 0x1FD3, { 0x399, 0x308, 0x301 } },
    { 0x1FD6, { 0x399, 0x342, 0 } }, { 0x1FD7, { 0x399, 0x308, 0x342 } },
    { 0x1FE2, { 0x3A5, 0x308, 0x300 } }, { 0x1FE3, { 0x3A5, 0x308, 0x301 } },
    { 0x1FE4, { 0x3A1, 0x313, 0 } }, { 0x1FE6, { 0x3A5, 0x342, 0 } },
    { 0x1FE7, { 0x3A5, 0x308, 0x342 } }, { 0x1FF2, { 0x1FFA, 0x399, 0 } },
    { 0x1FF3, { 0x3A9, 0x399, 0 } }, { 0x1FF4, { 0x38F, 0x399, 0 } },
    { 0x1FF6, { 0x3A9, 0x342, 0 } }, { 0x1FF7, { 0x3A9, 0x342, 0x399 } },
    { 0x1FFC, { 0x3A9, 0x399, 0 } }, { 0xFB00, { 0x46, 0x46, 0 } }, { 0xFB01, { 0x46, 0x49, 0 } },
    { 0xFB02, { 0x46, 0x4C, 0 } }, { 0xFB03, { 0x46, 0x46, 0x49 } },
    { 0xFB04, { 0x46, 0x46, 0x4C } }, { 0xFB05, { 0x53, 0x54, 0 } },
    { 0xFB06, { 0x53, 0x54, 0 } }, { 0xFB13, { 0x544, 0x546, 0 } },
    { 0xFB14, { 0x544, 0x535, 0 } }, { 0xFB15, { 0x544, 0x53B, 0 } },
    { 0xFB16, { 0x54E, 0x546, 0 } }, { 0xFB17, { 0x544, 0x53D, 0 } },
};

static const struct special title_special[] = {
    { 0xDF, { 0x53, 0x73, 0 } }, { 0x149, { 0x2BC, 0x4E, 0 } }, { 0x1F0, { 0x4A, 0x30C, 0 } },
    { 0x390, { 0x399, 0x308, 0x301 } }, { 0x3B0, { 0x3A5, 0x308, 0x301 } },
    { 0x587, { 0x535, 0x582, 0 } }, { 0x1E96, { 0x48, 0x331, 0 } },
    { 0x1E97, { 0x54, 0x308, 0 } }, { 0x1E98, { 0x57, 0x30A, 0 } },
    { 0x1E99, { 0x59, 0x30A, 0 } }, { 0x1E9A, { 0x41, 0x2BE, 0 } },
    { 0x1F50, { 0x3A5, 0x313, 0 } }, { 0x1F52, { 0x3A5, 0x313, 0x300 } },
    { 0x1F54, { 0x3A5, 0x313, 0x301 } }, { 0x1F56, { 0x3A5, 0x313, 0x342 } },
    { 0x1FB2, { 0x1FBA, 0x345, 0 } }, { 0x1FB4, { 0x386, 0x345, 0 } },
    { 0x1FB6, { 0x391, 0x342, 0 } }, { 0x1FB7, { 0x391, 0x342, 0x345 } },
    { 0x1FC2, { 0x1FCA, 0x345, 0 } }, { 0x1FC4, { 0x389, 0x345, 0 } },
    { 0x1FC6, { 0x397, 0x342, 0 } }, { 0x1FC7, { 0x397, 0x342, 0x345 } },
    { 0x1FD2, { 0x399, 0x308, 0x300 } }, { 0x1FD3, { 0x399, 0x308, 0x301 } },
    { 0x1FD6, { 0x399, 0x342, 0 } }, { 0x1FD7, { 0x399, 0x308, 0x342 } },
    { 0x1FE2, { 0x3A5, 0x308, 0x300 } }, { 0x1FE3, { 0x3A5, 0x308, 0x301 } },
    { 0x1FE4, { 0x3A1, 0x313, 0 } }, { 0x1FE6, { 0x3A5, 0x342, 0 } },
    { 0x1FE7, { 0x3A5, 0x308, 0x342 } }, { 0x1FF2, { 0x1FFA, 0x345, 0 } },
    { 0x1FF4, { 0x38F, 0x345, 0 } }, { 0x1FF6, { 0x3A9, 0x342, 0 } },
    { 0x1FF7, { 0x3A9, 0x342, 0x345 } }, { 0xFB00, { 0x46, 0x66, 0 } },
    { 0xFB01, { 0x46, 0x69, 0 } }, { 0xFB02, { 0x46, 0x6C, 0 } },
    { 0xFB03, { 0x46, 0x66, 0x69 } }, { 0xFB04, { 0x46, 0x66, 0x6C } },
    { 0xFB05, { 0x53, 0x74, 0 } }, { 0xFB06, { 0x53, 0x74, 0 } }, { 0xFB13, { 0x544, 0x576, 0 } },
    { 0xFB14, { 0x544, 0x565, 0 } }, { 0xFB15, { 0x544, 0x56B, 0 } },
    { 0xFB16, { 0x54E, 0x576, 0 } }, { 0xFB17, { 0x544, 0x56D, 0 } },
};

static const struct range32 other_lower[] = {
    { 0xAA, 0xAA }, { 0xBA, 0xBA }, { 0x2B0, 0x2B8 }, { 0x2C0, 0x2C1 }, { 0x2E0, 0x2E4 },
    { 0x345, 0x345 }, { 0x37A, 0x37A }, { 0x1D2C, 0x1D6A }, { 0x1D78, 0x1D78 },
    { 0x1D9B, 0x1DBF }, { 0x2071, 0x2071 }, { 0x207F, 0x207F }, { 0x2090, 0x209C },
    { 0x2170, 0x217F }, { 0x24D0, 0x24E9 }, { 0x2C7C, 0x2C7D }, { 0xA69C, 0xA69D },
    { 0xA770, 0xA770 }, { 0xA7F8, 0xA7F9 }, { 0xAB5C, 0xAB5F }, { 0x10780, 0x10780 },
    { 0x10783, 0x10785 }, { 0x10787, 0x107B0 }, { 0x107B2, 0x107BA },
};

static const struct range32 other_upper[] = {
    { 0x2160, 0x216F }, { 0x24B6, 0x24CF }, { 0x1F130, 0x1F149 }, { 0x1F150, 0x1F169 },
    { 0x1F170, 0x1F189 },
};

static const struct range32 digits_not_decimal[] = {
    { 0xB2, 0xB3 }, { 0xB9, 0xB9 }, { 0x1369, 0x1371 }, { 0x19DA, 0x19DA }, { 0x2070, 0x2070 },
    { 0x2074, 0x2079 }, { 0x2080, 0x2089 }, { 0x2460, 0x2468 }, { 0x2474, 0x247C },
    { 0x2488, 0x2490 }, { 0x24EA, 0x24EA }, { 0x24F5, 0x24FD }, { 0x24FF, 0x24FF },
    { 0x2776, 0x277E }, { 0x2780, 0x2788 }, { 0x278A, 0x2792 }, { 0x10A40, 0x10A43 },
    { 0x10E60, 0x10E68 }, { 0x11052, 0x1105A }, { 0x1F100, 0x1F10A },
};

static const struct range32 other_numeric[] = {
    { 0x3405, 0x3405 }, { 0x3483, 0x3483 }, { 0x382A, 0x382A }, { 0x3B4D, 0x3B4D },
    { 0x4E00, 0x4E00 }, { 0x4E03, 0x4E03 }, { 0x4E07, 0x4E07 }, { 0x4E09, 0x4E09 },
    { 0x4E5D, 0x4E5D }, { 0x4E8C, 0x4E8C }, { 0x4E94, 0x4E94 }, { 0x4E96, 0x4E96 },
    { 0x4EBF, 0x4EC0 }, { 0x4EDF, 0x4EDF }, { 0x4EE8, 0x4EE8 }, { 0x4F0D, 0x4F0D },
    { 0x4F70, 0x4F70 }, { 0x5104, 0x5104 }, { 0x5146, 0x5146 }, { 0x5169, 0x5169 },
    { 0x516B, 0x516B }, { 0x516D, 0x516D }, { 0x5341, 0x5341 }, { 0x5343, 0x5345 },
    { 0x534C, 0x534C }, { 0x53C1, 0x53C4 }, { 0x56DB, 0x56DB }, { 0x58F1, 0x58F1 },
    { 0x58F9, 0x58F9 }, { 0x5E7A, 0x5E7A }, { 0x5EFE, 0x5EFF }, { 0x5F0C, 0x5F0E },
    { 0x5F10, 0x5F10 }, { 0x62FE, 0x62FE }, { 0x634C, 0x634C }, { 0x67D2, 0x67D2 },
    { 0x6F06, 0x6F06 }, { 0x7396, 0x7396 }, { 0x767E, 0x767E }, { 0x8086, 0x8086 },
    { 0x842C, 0x842C }, { 0x8CAE, 0x8CAE }, { 0x8CB3, 0x8CB3 }, { 0x8D30, 0x8D30 },
    { 0x9621, 0x9621 }, { 0x9646, 0x9646 }, { 0x964C, 0x964C }, { 0x9678, 0x9678 },
    { 0x96F6, 0x96F6 }, { 0xF96B, 0xF96B }, { 0xF973, 0xF973 }, { 0xF978, 0xF978 },
    { 0xF9B2, 0xF9B2 }, { 0xF9D1, 0xF9D1 }, { 0xF9D3, 0xF9D3 }, { 0xF9FD, 0xF9FD },
    { 0x20001, 0x20001 }, { 0x20064, 0x20064 }, { 0x200E2, 0x200E2 }, { 0x20121, 0x20121 },
    { 0x2092A, 0x2092A }, { 0x20983, 0x20983 }, { 0x2098C, 0x2098C }, { 0x2099C, 0x2099C },
    { 0x20AEA, 0x20AEA }, { 0x20AFD, 0x20AFD }, { 0x20B19, 0x20B19 }, { 0x22390, 0x22390 },
    { 0x22998, 0x22998 }, { 0x23B1B, 0x23B1B }, { 0x2626D, 0x2626D }, { 0x2F890, 0x2F890 },
};

static const struct range32 not_ident_start[] = {
    { 0x37A, 0x37A }, { 0xE33, 0xE33 }, { 0xEB3, 0xEB3 }, { 0x1885, 0x1886 }, { 0x2118, 0x2118 },
    { 0x212E, 0x212E }, { 0x2E2F, 0x2E2F }, { 0xFC5E, 0xFC63 }, { 0xFDFA, 0xFDFB },
    { 0xFE70, 0xFE70 }, { 0xFE72, 0xFE72 }, { 0xFE74, 0xFE74 }, { 0xFE76, 0xFE76 },
    { 0xFE78, 0xFE78 }, { 0xFE7A, 0xFE7A }, { 0xFE7C, 0xFE7C }, { 0xFE7E, 0xFE7E },
    { 0xFF9E, 0xFF9F },
};

static const struct range32 not_ident[] = {
    { 0xB7, 0xB7 }, { 0x37A, 0x37A }, { 0x387, 0x387 }, { 0x1369, 0x1371 }, { 0x19DA, 0x19DA },
    { 0x2118, 0x2118 }, { 0x212E, 0x212E }, { 0x2E2F, 0x2E2F }, { 0xFC5E, 0xFC63 },
    { 0xFDFA, 0xFDFB }, { 0xFE70, 0xFE70 }, { 0xFE72, 0xFE72 }, { 0xFE74, 0xFE74 },
    { 0xFE76, 0xFE76 }, { 0xFE78, 0xFE78 }, { 0xFE7A, 0xFE7A }, { 0xFE7C, 0xFE7C },
    { 0xFE7E, 0xFE7E },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define IN(table, cp) in_ranges(table, COUNT(table), cp)

static bool in_ranges(const struct range32 *t, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (t[mid].last < cp) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < n && t[lo].first <= cp;
}

static const struct special *find_special(const struct special *t, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (t[mid].cp < cp) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < n && t[lo].cp == cp ? &t[lo] : NULL;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

static bool is_letter(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool uc_space(uint32_t cp)
{
    if (cp < 0x80) {
        return (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x20);
    }
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool uc_line_break(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool uc_alpha(uint32_t cp)
{
    return is_letter(cp);
}

bool uc_decimal(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool uc_digit(uint32_t cp)
{
    return uc_decimal(cp) || IN(digits_not_decimal, cp);
}

bool uc_numeric(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO) || IN(other_numeric, cp);
}

bool uc_printable(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_ZS:
        return cp == ' ';
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

bool uc_word(uint32_t cp)
{
    if (cp < 0x80) {
        return (cp >= '0' && cp <= '9') || ((cp | 32) >= 'a' && (cp | 32) <= 'z') || cp == '_';
    }
    return uc_alpha(cp) || uc_numeric(cp);
}

bool uc_ident(uint32_t cp, bool first)
{
    utf8proc_category_t c;

    if (cp < 0x80) {
        return uc_word(cp) && !(first && cp >= '0' && cp <= '9');
    }
    c = category(cp);
    if (is_letter(cp) || c == UTF8PROC_CATEGORY_NL) {
        return first ? !IN(not_ident_start, cp) : !IN(not_ident, cp);
    }
    if (first) {
        return IN(not_ident_start, cp);   /* outside the letters the table holds additions */
    }
    return (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ND ||
            c == UTF8PROC_CATEGORY_PC) != IN(not_ident, cp);
}

bool uc_upper(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LU || IN(other_upper, cp);
}

bool uc_lower(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LL || IN(other_lower, cp);
}

bool uc_title(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LT;
}

bool uc_cased(uint32_t cp)
{
    return uc_upper(cp) || uc_lower(cp) || uc_title(cp);
}

/* What stands between a letter and a final sigma without separating them. */
bool uc_case_ignorable(uint32_t cp)
{
    static const uint16_t marks[] = { 0x27, 0x2E, 0x3A, 0xB7, 0x387, 0x55F, 0x5F4, 0x2018, 0x2019,
                                      0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E,
                                      0xFF1A };

    for (size_t i = 0; i < COUNT(marks); i++) {
        if (cp == marks[i]) {
            return true;
        }
    }
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* Decimal digits come in runs that start with a zero. */
int uc_digit_value(uint32_t cp)
{
    uint32_t zero = cp;

    if (cp < 0x80) {
        return cp >= '0' && cp <= '9' ? (int)(cp - '0') : -1;
    }
    if (!uc_decimal(cp)) {
        return -1;
    }
    while (uc_decimal(zero - 1)) {
        zero--;
    }
    return (int)((cp - zero) % 10);
}

static int one(uint32_t cp, uint32_t out[3])
{
    out[0] = cp;
    return 1;
}

static int from_special(const struct special *s, uint32_t out[3])
{
    int n = 0;

    for (; n < 3 && s->to[n] != 0; n++) {
        out[n] = s->to[n];
    }
    return n;
}

static int fold(uint32_t cp, uint32_t out[3])
{
    utf8proc_int32_t folded[8];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, folded, 8,
                                                 UTF8PROC_CASEFOLD, &last);

    if (n < 1 || n > 3) {
        return one(cp, out);
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        out[i] = (uint32_t)folded[i];
    }
    return (int)n;
}

int uc_convert(uint32_t cp, enum uc_map map, uint32_t out[3])
{
    const struct special *s = NULL;

    switch (map) {
    case UC_UPPER:
        s = cp < 0x80 ? NULL : find_special(upper_special, COUNT(upper_special), cp);
        return s != NULL ? from_special(s, out)
                         : one((uint32_t)utf8proc_toupper((utf8proc_int32_t)cp), out);
    case UC_TITLE:
        s = cp < 0x80 ? NULL : find_special(title_special, COUNT(title_special), cp);
        return s != NULL ? from_special(s, out)
                         : one((uint32_t)utf8proc_totitle((utf8proc_int32_t)cp), out);
    case UC_LOWER:
        if (cp == 0x130) {
            out[0] = 'i';
            out[1] = 0x307;
            return 2;
        }
        return one((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), out);
    default:
        return fold(cp, out);
    }
}

/* ---- case of strings ---------------------------------------------------------------- */

static void put_converted(struct sb *b, const struct chars *c, enum uc_map map)
{
    uint32_t out[3];
    int n = uc_convert(c->cp, map, out);

    for (int i = 0; i < n; i++) {
        sb_char(b, out[i], c->marked);
    }
}

/* Whether the sigma at byte `at` ends a word: a letter before it and none behind it. */
static bool final_sigma(const struct str *s, size_t at)
{
    struct chars c = chars_of(s);
    bool before = false;

    while (chars_next(&c)) {
        if (c.at < at) {
            before = uc_case_ignorable(c.cp) ? before : uc_cased(c.cp);
        } else if (c.at > at && !uc_case_ignorable(c.cp)) {
            return before && !uc_cased(c.cp);
        }
    }
    return before;
}

static void put_lower(struct sb *b, const struct str *s, const struct chars *c)
{
    if (c->cp == 0x3A3) {
        run_step(b->r, s->n / 16);
        sb_char(b, final_sigma(s, c->at) ? 0x3C2 : 0x3C3, c->marked);
    } else {
        put_converted(b, c, UC_LOWER);
    }
}

static struct str *convert_all(struct jrun *r, const struct str *s, enum uc_map map)
{
    struct sb b;
    struct chars c = chars_of(s);

    sb_init(&b, r);
    while (chars_next(&c) && !r->failed) {
        if (map == UC_LOWER) {
            put_lower(&b, s, &c);
        } else {
            put_converted(&b, &c, map);
        }
    }
    return s->markup ? str_markup(r, sb_take(&b)) : sb_take(&b);
}

struct str *str_upper(struct jrun *r, const struct str *s)
{
    return convert_all(r, s, UC_UPPER);
}

struct str *str_lower(struct jrun *r, const struct str *s)
{
    return convert_all(r, s, UC_LOWER);
}

struct str *str_casefold(struct jrun *r, const struct str *s)
{
    return convert_all(r, s, UC_FOLD);
}

struct str *str_title(struct jrun *r, const struct str *s)
{
    struct sb b;
    struct chars c = chars_of(s);
    bool inside = false;

    sb_init(&b, r);
    while (chars_next(&c) && !r->failed) {
        if (inside) {
            put_lower(&b, s, &c);
        } else {
            put_converted(&b, &c, UC_TITLE);
        }
        inside = uc_cased(c.cp);
    }
    return s->markup ? str_markup(r, sb_take(&b)) : sb_take(&b);
}

struct str *str_capitalize(struct jrun *r, const struct str *s)
{
    struct sb b;
    struct chars c = chars_of(s);

    sb_init(&b, r);
    while (chars_next(&c) && !r->failed) {
        if (c.at == 0) {
            put_converted(&b, &c, UC_TITLE);
        } else {
            put_lower(&b, s, &c);
        }
    }
    return s->markup ? str_markup(r, sb_take(&b)) : sb_take(&b);
}

struct str *str_swapcase(struct jrun *r, const struct str *s)
{
    struct sb b;
    struct chars c = chars_of(s);

    sb_init(&b, r);
    while (chars_next(&c) && !r->failed) {
        if (uc_upper(c.cp)) {
            put_lower(&b, s, &c);
        } else if (uc_lower(c.cp)) {
            put_converted(&b, &c, UC_UPPER);
        } else {
            sb_char(&b, c.cp, c.marked);
        }
    }
    return s->markup ? str_markup(r, sb_take(&b)) : sb_take(&b);
}
