#include "pacer/data/everyday_prompts.h"

#include <iterator>
#include <span>
#include <string_view>
#include <unordered_set>

#include "pacer/base/error.h"
#include "pacer/base/random.h"

namespace pacer::data {
namespace {

using Texts = std::span<const std::string_view>;

// ---- advice: {G} what somebody wants to do, {O} what stands in the way, {P} another person, {T} a time, {H} a matter
// ----

constexpr std::string_view kAdvice[] = {
    "How can I {G}?",
    "I want to {G}, but {O}. What should I do?",
    "Can you give me some tips to {G}?",
    "My {P} wants to {G}. How can I help?",
    "What is a good first step to {G}?",
    "I have {T} to {G}. Where should I begin?",
    "Do you have any advice on how to {G}?",
    "I would like to {G}. What do I need to know?",
    "What are three simple ways to {G}?",
    "Is it a good idea to {G}? I am not sure yet.",
    "Help me to {G}, please. I am a beginner.",
    "My {P} and I disagree about {H}. How can we talk about it calmly?",
    "I worry a lot about {H} lately. What could help?",
    "What should I know about {H}?",
    "Give me a short plan for {H}.",
    "Which mistakes do people make with {H}?",
    "Tell me something encouraging about {H}.",
    "My {P} asked me for advice about {H}. What can I say?",
};
constexpr std::string_view kGoals[] = {
    "learn to cook simple meals",
    "save money every month",
    "start running in the mornings",
    "write a better resume",
    "learn a new language",
    "grow tomatoes on a balcony",
    "get better at chess",
    "make new friends at work",
    "sleep through the night",
    "drink more water",
    "plan a birthday party",
    "find a new apartment",
    "prepare for a job interview",
    "teach a dog to sit",
    "remember names better",
    "clean the kitchen faster",
    "stop biting my nails",
    "learn to play the guitar",
    "give up sugar",
    "train for a half marathon",
    "decorate a small bedroom",
    "organise old photos",
    "choose a bicycle",
    "cook for ten people",
    "study for an exam",
    "write a letter of complaint",
    "ask for a raise",
    "travel with a baby",
    "pack for a long trip",
    "make a household budget",
    "paint a wooden fence",
    "repair a bicycle tyre",
    "keep a diary",
    "eat more vegetables",
    "spend less time on my phone",
    "become more patient",
    "calm down before an exam",
    "start a small garden",
    "take better photographs",
    "learn to swim as an adult",
    "bake bread at home",
    "choose a good book for a child",
    "say no without feeling guilty",
    "apologise to a friend",
    "work from home without distractions",
    "wake up without an alarm",
    "reduce waste at home",
    "find a good dentist",
    "move house without stress",
    "introduce two friends",
    "welcome a new neighbour",
    "speak in front of a class",
    "learn to knit",
    "remove a stain from a shirt",
    "buy a used car",
    "plan a picnic",
    "keep plants alive during a holiday",
    "lose a little weight",
    "build a bookshelf",
    "stay in touch with old friends",
    "meditate for ten minutes a day",
    "organise a reading group",
    "choose a gift for a colleague",
    "make coffee taste better",
    "set up a home office",
    "teach a child to ride a bike",
    "plan meals for a week",
    "volunteer in my town",
    "start a blog",
    "improve my handwriting",
    "get along with a difficult boss",
    "train my memory",
    "cut down on coffee",
    "find time for exercise",
    "learn to draw faces",
    "keep the house warm in winter",
    "stay cool during a hot summer",
    "make a cheap and healthy lunch",
    "choose between two job offers",
    "write a short wedding speech",
    "plan a camping trip",
    "learn basic first aid",
    "make a compost heap",
    "feed birds in winter",
    "adopt an older dog",
    "help a child with mathematics",
    "read faster",
    "listen better",
    "give honest feedback",
    "begin a difficult conversation",
};
constexpr std::string_view kObstacles[] = {"I have little time",
                                           "I do not know where to start",
                                           "I always give up after a week",
                                           "I have no money for it",
                                           "I get nervous",
                                           "my family laughs at it",
                                           "I am tired in the evenings",
                                           "it feels too difficult",
                                           "I live in a small flat",
                                           "I forget it all the time",
                                           "I have tried twice and failed",
                                           "nobody around me does it",
                                           "the weather is always bad",
                                           "I am easily distracted",
                                           "I work late most days",
                                           "I am too shy to ask"};
constexpr std::string_view kPeople[] = {"sister", "brother",     "father",    "mother",  "best friend", "colleague",
                                        "son",    "daughter",    "uncle",     "aunt",    "roommate",    "partner",
                                        "cousin", "grandfather", "neighbour", "manager", "teammate"};
constexpr std::string_view kTimes[] = {"one week",      "a month",      "only a weekend",
                                       "an hour a day", "half a year",  "two days",
                                       "one evening",   "three months", "a few minutes every morning"};
constexpr std::string_view kMatters[] = {"money",
                                         "household chores",
                                         "holiday plans",
                                         "healthy food",
                                         "screen time",
                                         "pets",
                                         "exercise",
                                         "school grades",
                                         "noise at night",
                                         "public transport",
                                         "a new job",
                                         "moving abroad",
                                         "growing older",
                                         "raising children",
                                         "social media",
                                         "sleep",
                                         "stress at work",
                                         "winter clothes",
                                         "a first date",
                                         "a long flight",
                                         "online shopping",
                                         "learning at home",
                                         "team meetings",
                                         "old furniture",
                                         "weekend trips",
                                         "cooking for guests",
                                         "credit cards",
                                         "a vegetable garden",
                                         "morning routines",
                                         "a rainy holiday",
                                         "being alone",
                                         "big decisions",
                                         "family dinners",
                                         "lost luggage",
                                         "used clothes",
                                         "a broken phone"};

// ---- programs: {L} a language, {F} a task, {C} a notion, {D} two notions ----

constexpr std::string_view kPrograms[] = {
    "Write a {L} function that {F}.",
    "Show me a short {L} program that {F}.",
    "How do I write {L} code that {F}?",
    "Write and explain a {L} function that {F}.",
    "Explain what {C} is and when to use it.",
    "What is {C}? Give a short example.",
    "What is the difference between {D}?",
    "Compare {D} with a small example.",
    "Why do programmers use {C}?",
    "What are common mistakes with {C} in {L}?",
    "Give an example of {C} in {L}.",
    "How would you explain {C} to a beginner?",
};
constexpr std::string_view kLanguages[] = {"Python", "Python", "Python", "JavaScript", "Java",      "C",
                                           "C++",    "Go",     "Rust",   "Ruby",       "TypeScript"};
constexpr std::string_view kTasks[] = {"adds two numbers",
                                       "counts the even numbers in a list",
                                       "returns the average of a list of numbers",
                                       "counts the vowels in a string",
                                       "removes duplicates from a list",
                                       "checks whether a number is prime",
                                       "computes the greatest common divisor of two numbers",
                                       "prints the first ten square numbers",
                                       "converts Celsius to Fahrenheit",
                                       "sorts a list of names by length",
                                       "counts how often each word occurs in a text",
                                       "returns the sum of the digits of a number",
                                       "checks whether a string is a number",
                                       "finds the longest word in a sentence",
                                       "removes all spaces from a string",
                                       "prints a multiplication table",
                                       "computes the area of a circle",
                                       "splits a sentence into words",
                                       "joins a list of strings with commas",
                                       "returns the last element of a list",
                                       "finds the index of a value in a list",
                                       "computes a power without a library",
                                       "checks whether two words are anagrams",
                                       "generates a random password",
                                       "computes the n-th Fibonacci number",
                                       "counts the lines of a file",
                                       "reads two numbers and prints their product",
                                       "replaces every comma by a semicolon",
                                       "rotates a list by one place",
                                       "converts a decimal number to binary",
                                       "checks whether a year is a leap year",
                                       "returns the smallest of three numbers",
                                       "flattens a list of lists",
                                       "swaps two variables",
                                       "prints the numbers from one to one hundred",
                                       "computes the total price of a shopping cart",
                                       "validates an email address",
                                       "searches a sorted list",
                                       "capitalises every word of a title",
                                       "finds all files with a given ending",
                                       "measures how long a loop takes",
                                       "writes a list of lines to a file",
                                       "returns the common elements of two lists",
                                       "computes the median of a list",
                                       "counts down from ten to zero",
                                       "draws a triangle of stars",
                                       "parses a date",
                                       "transposes a matrix",
                                       "computes simple interest",
                                       "removes negative numbers from a list"};
constexpr std::string_view kNotions[] = {"a linked list",
                                         "an array",
                                         "a dictionary",
                                         "a binary tree",
                                         "a loop",
                                         "a function",
                                         "a class",
                                         "an interface",
                                         "inheritance",
                                         "an exception",
                                         "a pointer",
                                         "a variable",
                                         "version control",
                                         "unit testing",
                                         "a database index",
                                         "a primary key",
                                         "an API",
                                         "caching",
                                         "a thread",
                                         "a compiler",
                                         "an interpreter",
                                         "a regular expression",
                                         "JSON",
                                         "encryption",
                                         "a web server",
                                         "a loop invariant",
                                         "a set",
                                         "a tuple",
                                         "a lambda function",
                                         "a decorator",
                                         "a merge conflict",
                                         "garbage collection",
                                         "a constructor",
                                         "polymorphism",
                                         "a boolean",
                                         "a graph",
                                         "sorting",
                                         "a heap",
                                         "a module",
                                         "an operating system",
                                         "a cookie",
                                         "a breakpoint"};

constexpr std::string_view kNotionPairs[] = {"a list and a tuple",
                                             "a compiler and an interpreter",
                                             "a class and an object",
                                             "a thread and a process",
                                             "an array and a linked list",
                                             "a while loop and a do-while loop",
                                             "a parameter and an argument",
                                             "GET and POST",
                                             "a set and a dictionary",
                                             "unit tests and integration tests",
                                             "a primary key and a foreign key",
                                             "JSON and XML",
                                             "depth-first and breadth-first search",
                                             "a pointer and a reference",
                                             "static and dynamic typing",
                                             "HTTP and HTTPS",
                                             "a shallow and a deep copy",
                                             "an abstract class and an interface",
                                             "SQL and NoSQL databases",
                                             "git merge and git pull"};

// ---- the world: {K} a thing that works, {E} something that happens, {S} a subject, {Z} two of them, {Y} a country
// ----

constexpr std::string_view kQuestions[] = {
    "How does a {K} work?",
    "Why {E}?",
    "What is {S}?",
    "Explain {S} in simple words.",
    "Why is {S} important?",
    "What is the capital of {Y}?",
    "Which languages do people speak in {Y}?",
    "Name three facts about {Y}.",
    "What is a typical meal in {Y}?",
    "What is the difference between {Z}?",
    "Who discovered or invented the {K}?",
    "What are the main parts of a {K}?",
    "What was used before the {K} was invented?",
    "Give a short summary of {S}.",
    "What is a common misunderstanding about {S}?",
    "Give two examples that have to do with {S}.",
    "How would you teach {S} in school?",
    "What is the climate of {Y} like?",
    "What is {Y} famous for?",
    "What should a visitor to {Y} know?",
};
constexpr std::string_view kEndings[] = {"",
                                         "",
                                         "",
                                         " Please be brief.",
                                         " Answer in a few sentences.",
                                         " Explain it to a ten-year-old.",
                                         " Give one example."};
constexpr std::string_view kMachines[] = {
    "microwave oven", "telescope",    "steam engine",   "light bulb", "solar panel", "battery",         "compass",
    "radio",          "bicycle",      "submarine",      "camera",     "microscope",  "washing machine", "loudspeaker",
    "wind turbine",   "lock and key", "piano",          "rocket",     "elevator",    "hot-air balloon", "barometer",
    "laser",          "touch screen", "smoke detector", "parachute",  "dishwasher",  "helicopter",      "water pump"};
constexpr std::string_view kEvents[] = {"do we dream",
                                        "do birds fly south in winter",
                                        "does ice float on water",
                                        "do we yawn",
                                        "is the grass green",
                                        "do stars twinkle",
                                        "does metal feel colder than wood",
                                        "do onions make us cry",
                                        "does the moon change its shape",
                                        "do volcanoes erupt",
                                        "do we need sleep",
                                        "do cats land on their feet",
                                        "does a rainbow have colours",
                                        "do some people have freckles",
                                        "does iron rust",
                                        "is glass transparent",
                                        "do dogs wag their tails",
                                        "do we get goosebumps",
                                        "does thunder follow lightning",
                                        "do spiders not stick to their own webs",
                                        "is exercise good for the heart",
                                        "do days get shorter in autumn",
                                        "does milk turn sour",
                                        "did the dinosaurs die out",
                                        "do planets move around the sun",
                                        "does hair turn grey"};
constexpr std::string_view kSubjects[] = {"gravity",
                                          "democracy",
                                          "evolution",
                                          "electricity",
                                          "the water cycle",
                                          "friction",
                                          "an ecosystem",
                                          "magnetism",
                                          "the Renaissance",
                                          "the Roman Empire",
                                          "DNA",
                                          "the immune system",
                                          "supply and demand",
                                          "global trade",
                                          "a black hole",
                                          "the speed of light",
                                          "an atom",
                                          "a molecule",
                                          "a glacier",
                                          "an earthquake",
                                          "the stock market",
                                          "a metaphor",
                                          "biodiversity",
                                          "the solar system",
                                          "a parliament",
                                          "the French Revolution",
                                          "renewable energy",
                                          "an ocean current",
                                          "a virus",
                                          "a vitamin",
                                          "probability",
                                          "a fraction",
                                          "the scientific method",
                                          "recycling",
                                          "a hurricane",
                                          "the food chain",
                                          "the human heart",
                                          "a desert",
                                          "a constitution",
                                          "jazz"};
constexpr std::string_view kSubjectPairs[] = {"a comet and an asteroid",
                                              "a fruit and a vegetable",
                                              "mitosis and meiosis",
                                              "a novel and a short story",
                                              "heat and temperature",
                                              "a virus and a bacterium",
                                              "a river and a canal",
                                              "speed and velocity",
                                              "a frog and a toad",
                                              "a symphony and a concerto",
                                              "a debit and a credit card",
                                              "an alligator and a crocodile",
                                              "a moon and a planet",
                                              "mass and weight",
                                              "a butterfly and a moth",
                                              "an island and a peninsula",
                                              "direct and alternating current",
                                              "a republic and a monarchy",
                                              "a simile and a metaphor",
                                              "an element and a compound"};
constexpr std::string_view kCountries[] = {
    "Norway",  "Brazil", "Kenya",   "Japan",     "Canada",  "Egypt",  "Vietnam", "Greece",  "Mexico",  "Poland",
    "Morocco", "India",  "Finland", "Argentina", "Ireland", "Turkey", "Peru",    "Iceland", "Nigeria", "Thailand",
    "Austria", "Chile",  "Hungary", "Indonesia", "Spain",   "Sweden", "Italy",   "Cuba",    "Nepal",   "Jordan"};

std::string_view pick(const RandomStream& random, uint64_t draw, Texts from) {
  return from[random.below(draw, from.size())];
}

// Draw numbers are fixed per letter, so that a wording that uses fewer letters moves nothing else.
std::string_view phrase(const RandomStream& random, char letter) {
  switch (letter) {
    case 'G':
      return pick(random, 10, kGoals);
    case 'O':
      return pick(random, 11, kObstacles);
    case 'P':
      return pick(random, 12, kPeople);
    case 'T':
      return pick(random, 13, kTimes);
    case 'H':
      return pick(random, 14, kMatters);
    case 'L':
      return pick(random, 15, kLanguages);
    case 'F':
      return pick(random, 16, kTasks);
    case 'C':
      return pick(random, 17, kNotions);
    case 'D':
      return pick(random, 18, kNotionPairs);
    case 'K':
      return pick(random, 19, kMachines);
    case 'E':
      return pick(random, 20, kEvents);
    case 'S':
      return pick(random, 21, kSubjects);
    case 'Z':
      return pick(random, 22, kSubjectPairs);
    case 'Y':
      return pick(random, 23, kCountries);
    default:
      throw Error(ErrorKind::bug, std::string("a template asks for the phrase '") + letter + "'");
  }
}

std::string fill(const RandomStream& random, std::string_view wording) {
  std::string text;
  for (size_t i = 0; i < wording.size(); ++i) {
    if (wording[i] != '{') {
      text += wording[i];
      continue;
    }
    text += phrase(random, wording.at(i + 1));
    i += 2;
  }
  return text;
}

}  // namespace

std::vector<EverydayPrompt> everyday_prompts(uint64_t seed, int64_t count) {
  if (count < 0 || count > 6'000) {
    throw Error(ErrorKind::usage, "everyday prompts: " + std::to_string(count) + " asked for, 0 to 6000 are possible");
  }
  struct Kind {
    const char* name;
    Texts wordings;
  };
  const Kind kinds[] = {{"chat", kAdvice}, {"code", kPrograms}, {"chat", kAdvice}, {"questions", kQuestions}};
  constexpr uint64_t kStep = 2;  // word problems draw from steps 0 and 1
  std::vector<EverydayPrompt> prompts;
  std::unordered_set<std::string> seen;
  for (uint64_t draw = 0; static_cast<int64_t>(prompts.size()) < count; ++draw) {
    const Kind& kind = kinds[prompts.size() % std::size(kinds)];
    const RandomStream random(seed, Purpose::prompts, kStep, draw);
    std::string text = fill(random, pick(random, 0, kind.wordings));
    text += pick(random, 1, kEndings);
    if (!seen.insert(text).second) continue;
    prompts.push_back(
        {std::string(kind.name) + "-train-" + std::to_string(prompts.size()), kind.name, std::move(text)});
  }
  return prompts;
}

}  // namespace pacer::data
