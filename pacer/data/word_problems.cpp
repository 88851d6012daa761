#include "pacer/data/word_problems.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <unordered_set>

#include "pacer/base/error.h"
#include "pacer/base/random.h"

namespace pacer::data {
namespace {

using Texts = std::span<const std::string_view>;

constexpr std::string_view kTrainNames[] = {
    "Ada",    "Ahmed", "Aiko",    "Alan",   "Alma",   "Amir",   "Anna",   "Anton", "Aria",  "Arun",    "Astrid",
    "Bela",   "Ben",   "Bianca",  "Boris",  "Bruno",  "Carla",  "Carlos", "Cem",   "Chen",  "Chloe",   "Clara",
    "Daan",   "Dalia", "Daniel",  "Daria",  "David",  "Diego",  "Dora",   "Edgar", "Elena", "Elif",    "Elsa",
    "Emil",   "Emma",  "Enzo",    "Erik",   "Esther", "Eva",    "Farid",  "Felix", "Fiona", "Frida",   "Gabriel",
    "Gina",   "Grace", "Greta",   "Hana",   "Hannah", "Hassan", "Helen",  "Henry", "Hugo",  "Ibrahim", "Ida",
    "Igor",   "Ines",  "Irene",   "Isaac",  "Ivan",   "Jack",   "Jana",   "Jonas", "Jorge", "Julia",   "Kai",
    "Karim",  "Kate",  "Kenji",   "Klara",  "Lars",   "Laura",  "Lea",    "Leo",   "Lena",  "Liam",    "Lina",
    "Lucas",  "Luisa", "Magnus",  "Maria",  "Marco",  "Martha", "Maya",   "Mei",   "Milan", "Mira",    "Mohamed",
    "Nadia",  "Nina",  "Noah",    "Nora",   "Olga",   "Omar",   "Oscar",  "Pablo", "Paula", "Peter",   "Priya",
    "Rafael", "Rosa",  "Ruben",   "Ruth",   "Samir",  "Sara",   "Simon",  "Sofia", "Sven",  "Tara",    "Theo",
    "Tom",    "Uma",   "Valeria", "Victor", "Wei",    "Yara",   "Yusuf",  "Zoe"};

constexpr std::string_view kHeldOutNames[] = {
    "Adrian",  "Beatrice", "Callum", "Deniz",  "Eleanor", "Florian", "Gustav", "Harriet",  "Idris",
    "Jasmine", "Kofi",     "Leila",  "Matteo", "Naomi",   "Otto",    "Petra",  "Quentin",  "Rania",
    "Stefan",  "Tamara",   "Ugo",    "Vera",   "William", "Ximena",  "Yuki",   "Zacharias"};

constexpr std::string_view kThings[] = {"apples",  "pencils", "marbles", "stickers",  "shells", "stamps", "cookies",
                                        "books",   "buttons", "oranges", "postcards", "beads",  "coins",  "balloons",
                                        "flowers", "cards",   "candles", "toy cars",  "lemons", "magnets"};
constexpr std::string_view kBoxes[] = {"boxes", "bags", "baskets", "jars", "crates", "packets", "trays", "drawers"};
constexpr std::string_view kFriends[] = {"a friend",    "a neighbour", "a cousin", "a classmate",
                                         "the teacher", "a brother",   "a sister", "the postman"};
constexpr std::string_view kPlaces[] = {"market",        "corner shop",  "school fair", "bakery",
                                        "garden centre", "library sale", "toy store",   "farm"};
constexpr std::string_view kWorks[] = {"paints", "folds", "repairs", "packs", "waters", "carves", "sews", "cleans"};
constexpr std::string_view kMade[] = {"lanterns", "paper cranes", "bicycles", "parcels",
                                      "plants",   "spoons",       "pillows",  "windows"};
constexpr std::string_view kTrips[] = {"bus", "train", "ferry", "tram", "bicycle", "van"};
constexpr std::string_view kRows[] = {"chairs", "trees", "tulips", "desks", "tiles", "bottles", "lamps", "seats"};
constexpr std::string_view kDays[] = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
constexpr std::string_view kEndings[] = {"",
                                         "",
                                         "",
                                         " Explain briefly.",
                                         " Show the steps.",
                                         " Answer in one or two sentences.",
                                         " Give the calculation and the result."};

// {A} and {B} are the numbers, the larger one first where the sense asks for it. Each template has several wordings, so
// that copying from the prompt does not get far.
struct Pattern {
  std::string_view name;
  bool larger_first;  // the first number is the larger one
  int64_t least, most_first, most_second;
  std::array<std::string_view, 3> wordings;
};

constexpr Pattern kPatterns[] = {
    {"gain",
     false,
     2,
     60,
     60,
     {"{N} has {A} {T}. At the {P} {N} gets {B} more. How many {T} does {N} have now?",
      "There are {A} {T} on {N}'s shelf and {B} more in a bag. How many {T} are there altogether?",
      "On {D} {N} counted {A} {T}. The next day {B} new ones arrived. What is the total?"}},
    {"loss",
     true,
     2,
     90,
     60,
     {"{N} had {A} {T} and gave {B} of them to {F}. How many {T} are left?",
      "Of the {A} {T} that {N} owned, {B} got lost on the way to the {P}. How many remain?",
      "{N} started the week with {A} {T}. By {D}, {B} had been used up. How many are there still?"}},
    {"groups",
     false,
     2,
     12,
     20,
     {"{N} fills {A} {X} with {B} {T} each. How many {T} is that in total?",
      "There are {A} {X} in the cupboard. {N} puts {B} {T} into every one. How many {T} are needed?",
      "At the {P} {N} buys {A} {X}, and each holds {B} {T}. How many {T} did {N} buy?"}},
    {"sharing",
     false,
     2,
     12,
     12,
     {"{N} wants to share {M} {T} equally among {A} children. How many does each child get?",
      "{N} has to fit {M} {T} into {A} {X} of the same size. How many {T} go into each?",
      "A teacher hands {N} {M} {T} to split into {A} equal piles. How big is one pile?"}},
    {"price",
     false,
     2,
     15,
     25,
     {"One ticket costs {B} dollars. How much does {N} pay for {A} tickets?",
      "At the {P} a pack of {T} is {B} dollars. {N} takes {A} packs. What is the bill?",
      "{N} saves {B} dollars every week. How much money is that after {A} weeks?"}},
    {"change",
     true,
     3,
     100,
     60,
     {"{N} goes to the {P} with {A} dollars and spends {B} dollars. How much money is left?",
      "A coat costs {A} dollars, but {N} has a coupon for {B} dollars off. What is the price now?",
      "{N} owes {F} {A} dollars and pays back {B} dollars on {D}. How much is still owed?"}},
    {"distance",
     false,
     2,
     12,
     90,
     {"A {V} travels {B} kilometres every hour. How far does {N} get in {A} hours?",
      "{N} walks {B} steps a minute. How many steps is that in {A} minutes?",
      "Every day the {V} covers {B} kilometres. {N} rides along for {A} days. How long is the whole trip?"}},
    {"compare",
     true,
     2,
     90,
     60,
     {"{N} has {A} {T} and {F} has {B}. How many more does {N} have?",
      "There are {A} pages in one book and {B} in the other. {N} reads both. What is the difference in pages?",
      "A red ribbon is {A} centimetres long, a blue one {B} centimetres. How much longer is the red one, asks {N}?"}},
    {"work",
     false,
     2,
     14,
     20,
     {"{N} {W} {B} {K} a day. How many {K} are finished after {A} days?",
      "In one hour {N} {W} {B} {K}. How many can be done in {A} hours?",
      "A workshop with {A} people needs help. Like {N}, each of them {W} {B} {K}. How many {K} is that?"}},
    {"rows",
     false,
     2,
     15,
     20,
     {"{N} arranges {R} in {A} rows with {B} in each row. How many {R} are there?",
      "A hall has {A} rows of {B} {R}. How many {R} does {N} count?",
      "In {N}'s yard stand {A} lines of {R}, {B} to a line. How many {R} is that altogether?"}},
    {"age",
     false,
     3,
     40,
     40,
     {"{N} is {A} years old. How old will {N} be in {B} years?",
      "{N} was {A} when the family moved. That was {B} years ago. How old is {N} today?",
      "The oak behind the {P} was {A} years old when {N} was born. Now {N} is {B}. How old is the oak?"}},
    {"twice",
     false,
     2,
     30,
     30,
     {"{N} picks {A} {T} in the morning and twice as many in the afternoon, then finds {B} more. How many in all?",
      "A box holds {A} {T}. {N} buys two such boxes and {B} single ones. How many {T} is that?",
      "{N} reads {A} pages on {D} and double that on the next day, and {B} pages on the third. How many pages "
      "together?"}},
};

std::string_view pick(const RandomStream& random, uint64_t slot, Texts texts) {
  return texts[random.below(slot, texts.size())];
}

// Whether an unordered pair belongs to the held-out split: a fixed fifth of all pairs, whatever the seed.
bool held_out_pair(int64_t a, int64_t b) {
  const auto low = static_cast<uint64_t>(std::min(a, b)), high = static_cast<uint64_t>(std::max(a, b));
  return RandomStream(0, Purpose::prompts, low, high).below(0, 5) == 0;
}

std::string fill(std::string_view wording, const std::vector<std::pair<char, std::string>>& values) {
  std::string text;
  for (size_t i = 0; i < wording.size(); ++i) {
    if (wording[i] != '{') {
      text += wording[i];
      continue;
    }
    const char slot = wording[i + 1];
    text += std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == slot; })->second;
    i += 2;  // the letter and the closing brace
  }
  return text;
}

WordProblem make(const RandomStream& random, Split split) {
  const Pattern& pattern = kPatterns[random.below(0, std::size(kPatterns))];
  int64_t a = 0, b = 0;
  const auto range = [](int64_t most, int64_t least) { return static_cast<uint64_t>(most - least + 1); };
  for (uint64_t attempt = 0;; ++attempt) {
    a = pattern.least + static_cast<int64_t>(random.below(100 + 2 * attempt, range(pattern.most_first, pattern.least)));
    b = pattern.least +
        static_cast<int64_t>(random.below(101 + 2 * attempt, range(pattern.most_second, pattern.least)));
    if (pattern.larger_first && a <= b) continue;
    if (held_out_pair(a, b) == (split == Split::held_out)) break;
  }
  const Texts names = split == Split::train ? Texts(kTrainNames) : Texts(kHeldOutNames);
  WordProblem problem{.id = {},
                      .pattern = std::string(pattern.name),
                      .name = std::string(pick(random, 1, names)),
                      .first = a,
                      .second = b,
                      .text = {}};
  const uint64_t work = random.below(9, std::size(kWorks));  // what is done and to what belong together
  problem.text =
      fill(pattern.wordings[random.below(2, pattern.wordings.size())], {{'N', problem.name},
                                                                        {'A', std::to_string(a)},
                                                                        {'B', std::to_string(b)},
                                                                        {'M', std::to_string(a * b)},
                                                                        {'T', std::string(pick(random, 3, kThings))},
                                                                        {'X', std::string(pick(random, 4, kBoxes))},
                                                                        {'F', std::string(pick(random, 5, kFriends))},
                                                                        {'P', std::string(pick(random, 6, kPlaces))},
                                                                        {'V', std::string(pick(random, 7, kTrips))},
                                                                        {'R', std::string(pick(random, 8, kRows))},
                                                                        {'W', std::string(kWorks[work])},
                                                                        {'K', std::string(kMade[work])},
                                                                        {'D', std::string(pick(random, 10, kDays))}});
  problem.text += pick(random, 11, kEndings);
  return problem;
}

}  // namespace

std::vector<WordProblem> word_problems(uint64_t seed, Split split, int64_t count) {
  if (count < 0 || count > 100'000) {
    throw Error(ErrorKind::usage, "word problems: " + std::to_string(count) + " asked for, 0 to 100000 are possible");
  }
  std::vector<WordProblem> problems;
  std::unordered_set<std::string> seen;
  const auto step = static_cast<uint64_t>(split);
  for (uint64_t draw = 0; static_cast<int64_t>(problems.size()) < count; ++draw) {
    WordProblem problem = make(RandomStream(seed, Purpose::prompts, step, draw), split);
    if (!seen.insert(problem.text).second) continue;
    problem.id = (split == Split::train ? "train-" : "held-out-") + std::to_string(problems.size());
    problems.push_back(std::move(problem));
  }
  return problems;
}

std::vector<std::string> word_problem_patterns() {
  std::vector<std::string> names;
  for (const Pattern& pattern : kPatterns) names.emplace_back(pattern.name);
  return names;
}

}  // namespace pacer::data
