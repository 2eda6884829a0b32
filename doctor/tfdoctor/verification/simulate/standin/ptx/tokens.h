/* PTX text as words. A word is a name with its dots (ld.global.v2.u32), a number, a string or one other character. */
#pragma once
#include "ptx.h"

namespace ptx {

class Tokens {
  public:
    explicit Tokens(std::string_view text) : text_(text) { next(); }

    std::string_view word() const { return word_; } /* empty at the end */
    bool end() const { return word_.empty(); }
    bool is(std::string_view what) const { return word_ == what; }
    bool take(std::string_view what) {
        if (word_ != what) return false;
        next();
        return true;
    }
    void expect(std::string_view what) {
        if (!take(what)) throw Unsupported{"PTX that reads \"" + std::string(word_) + "\" where " + std::string(what) + " was expected"};
    }
    std::string_view pop() {
        std::string_view word = word_;
        if (end()) throw Unsupported{"PTX that ends too early"};
        next();
        return word;
    }
    void skip_line() {
        while (at_ < text_.size() && text_[at_] != '\n') at_++;
        next();
    }
    /* What stands between the braces; the word must be the opening one. */
    std::string_view braces() {
        size_t start = at_;
        for (int depth = 1; depth;) {
            if (at_ >= text_.size()) throw Unsupported{"PTX whose braces do not close"};
            next_inside_braces(depth);
        }
        next();
        return text_.substr(start, last_ - start);
    }
    size_t position() const { return start_; } /* where the word begins */
    std::string_view since(size_t position) const { return text_.substr(position, start_ - position); }

  private:
    static bool in_name(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%' || c == '.';
    }
    void blanks() {
        for (; at_ < text_.size(); at_++) {
            char c = text_[at_], after = at_ + 1 < text_.size() ? text_[at_ + 1] : 0;
            if (c == '/' && after == '/') {
                at_ = text_.find('\n', at_);
                if (at_ == text_.npos) at_ = text_.size() - 1;
            } else if (c == '/' && after == '*') {
                size_t close = text_.find("*/", at_ + 2);
                at_ = close == text_.npos ? text_.size() - 1 : close + 1;
            } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
                return;
            }
        }
    }
    void next() {
        blanks();
        start_ = at_;
        if (at_ >= text_.size()) {
            word_ = {};
            return;
        }
        if (text_[at_] == '"') {
            size_t close = text_.find('"', at_ + 1);
            at_ = close == text_.npos ? text_.size() : close + 1;
        } else if (in_name(text_[at_])) {
            bool number = text_[at_] >= '0' && text_[at_] <= '9';
            while (at_ < text_.size() && (in_name(text_[at_]) || two_colons() || (number && exponent()))) at_ += two_colons() ? 2 : 1;
        } else {
            at_++;
        }
        word_ = text_.substr(start_, at_ - start_);
    }
    bool two_colons() const { return text_.compare(at_, 2, "::") == 0; }
    /* The sign of 1.5e-3, but not the one of 0x1e+4. */
    bool exponent() const {
        return (text_[at_] == '-' || text_[at_] == '+') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E') && text_.compare(start_, 2, "0x") != 0 &&
               text_.compare(start_, 2, "0f") != 0 && text_.compare(start_, 2, "0d") != 0 && text_.compare(start_, 2, "0F") != 0 &&
               text_.compare(start_, 2, "0D") != 0 && text_.compare(start_, 2, "0X") != 0;
    }
    /* Fast: to the next brace, without words between. */
    void next_inside_braces(int &depth) {
        for (; at_ < text_.size(); at_++) {
            blanks();
            if (at_ >= text_.size()) return;
            char c = text_[at_];
            if (c == '"') {
                at_ = text_.find('"', at_ + 1);
                if (at_ == text_.npos) at_ = text_.size() - 1;
            } else if (c == '{' || c == '}') {
                depth += c == '{' ? 1 : -1;
                last_ = at_++;
                return;
            }
        }
    }

    std::string_view text_, word_;
    size_t at_ = 0, start_ = 0, last_ = 0;
};

/* A number as PTX writes it. Sets *is_double for 0d... and 1.5; a 0f... gives the bits of a float. */
bool number(std::string_view word, u64 *value, bool *is_double);

/* ".align 8 .b8 name[16]", ".b32 %r<10>", without the space before it. */
Declaration read_declaration(Tokens &tokens);

} // namespace ptx
